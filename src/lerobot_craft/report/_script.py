# SPDX-License-Identifier: Apache-2.0
"""What the page does: language, theme, sorting, values under the pointer. All is shown without it too."""

SCRIPT = r"""
(() => {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";
  const showTheme = () => root.toggleAttribute("data-dark", isDark());
  showTheme();
  prefersDark.addEventListener("change", showTheme);

  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });

  document.getElementById("language").addEventListener("click", () => {
    root.dataset.lang = root.dataset.lang === "en" ? "zh" : "en";
    root.lang = root.dataset.lang === "en" ? "en" : "zh-Hans";
    document.title = root.dataset.lang === "en" ? root.dataset.titleEn : root.dataset.titleZh;
  });

  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    const words = cell.textContent.trim();
    return words === "–" || words === "" ? null : words;
  };
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  for (const table of document.querySelectorAll("table.sortable")) {
    table.querySelectorAll("thead button").forEach((button) => {
      const head = button.parentElement;
      button.addEventListener("click", () => {
        // Numbers are looked at from the largest down, names from A on.
        const first = head.classList.contains("n") ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        const direction = head.getAttribute("aria-sort") === first ? other : first;
        table.querySelectorAll("th[aria-sort]").forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", direction);
        const column = head.cellIndex;
        const rows = [...table.tBodies[0].rows].sort((one, two) => {
          const a = key(one, column), b = key(two, column);
          if (a === null || b === null) return (a === null) - (b === null);
          return direction === "ascending" ? order(a, b) : order(b, a);
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  const tip = document.getElementById("tip");
  document.addEventListener("pointermove", (event) => {
    const words = event.target.dataset ? event.target.dataset[root.dataset.lang] : undefined;
    tip.style.display = words ? "block" : "none";
    if (!words) return;
    tip.textContent = words;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const above = event.clientY - tip.offsetHeight - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 4 ? above : event.clientY + 18}px`;
  });
})();
"""
