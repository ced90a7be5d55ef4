# SPDX-License-Identifier: Apache-2.0
"""How the page looks: light, dark, narrow, and on paper; knows nothing of what it shows.

The eight colours follow Okabe and Ito's, which people with any colour vision can tell apart, adapted to both themes.
"""

_LIGHT = """
color-scheme: light;
--paper: #fdfdfb; --raised: #f6f5f1; --ink: #1c1f23; --soft: #5d636b; --hair: #e3e1da; --grid: #ebe9e3; --heat: #2f86c1;
--good: #00734f; --bad: #b3420a;
--c0: #0067a8; --c1: #c8500a; --c2: #a87400; --c3: #00805c; --c4: #a8457c; --c5: #565c64; --c6: #2b8fc0; --c7: #837a00;
"""
_DARK = """
color-scheme: dark;
--paper: #14161a; --raised: #1c1f24; --ink: #e8e6e1; --soft: #a1a7af; --hair: #2e333a; --grid: #252a30; --heat: #3f9bd8;
--good: #4cc79b; --bad: #f0854a;
--c0: #5fb4ee; --c1: #f0803c; --c2: #e3b341; --c3: #35c297; --c4: #e391bf; --c5: #b4bac2; --c6: #9bdcfa; --c7: #d9cf5b;
"""
_SANS = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "PingFang SC", "Microsoft YaHei", '
    '"Noto Sans CJK SC", sans-serif'
)
_SERIF = (
    '"Iowan Old Style", "Palatino Linotype", Palatino, "Source Serif 4", Georgia, "Songti SC", "Noto Serif CJK SC", '
    "SimSun, serif"
)

_RULES = """
* { box-sizing: border-box; }
html { background: var(--paper); -webkit-text-size-adjust: 100%; }
@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth; } }
body { margin: 0; color: var(--ink); font: 16px/1.6 SANS; font-variant-numeric: tabular-nums; }
main, header { max-width: 928px; margin: 0 auto; padding: 0 24px; }
header { display: flex; gap: 16px; align-items: baseline; padding-top: 28px; color: var(--soft); font-size: 14px; }
header .name { flex: 1; }
header .name b { color: var(--ink); font-weight: 600; }
header button { font: inherit; color: var(--soft); background: none; border: 1px solid var(--hair); border-radius: 6px;
  padding: 2px 12px; min-width: 64px; cursor: pointer; white-space: nowrap; }
header button:hover, header button:focus-visible { color: var(--ink); border-color: var(--soft); }
html[data-lang="en"] .zh, html[data-lang="zh"] .en { display: none; }
html:not([data-dark]) .when-dark, html[data-dark] .when-light { display: none; }
.verdict { font: 27px/1.42 SERIF; margin: 48px 0 16px; text-wrap: pretty; }
.verdict strong { font-weight: 600; }
.verdict + .verdict { font-size: 21px; margin-top: 0; }
.aside { color: var(--soft); margin: 0 0 10px; max-width: 72ch; }
.tiles { display: flex; flex-wrap: wrap; gap: 14px 44px; margin: 30px 0 6px; padding: 20px 0; border: solid var(--hair);
  border-width: 1px 0; }
.tile b { display: block; font: 30px/1.2 SERIF; font-variant-numeric: tabular-nums lining-nums; }
.tile span { color: var(--soft); font-size: 13.5px; }
.tile.good b { color: var(--good); }
.tile.bad b { color: var(--bad); }
nav { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 22px 0 0; font-size: 14px; }
a { color: inherit; text-decoration-color: var(--hair); text-underline-offset: 3px; }
a:hover { text-decoration-color: currentColor; }
nav a { color: var(--soft); }
section { margin-top: 68px; }
h2 { font: 600 23px/1.3 SERIF; margin: 0 0 6px; }
h3 { font: 600 15px/1.4 SANS; margin: 30px 0 2px; overflow-wrap: anywhere; }
section > p.aside { font-size: 14px; line-height: 1.55; }
section > p { max-width: 72ch; margin: 6px 0 14px; }
figure { margin: 22px 0 30px; min-width: 0; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 10px 24px; }
.pair > * { min-width: 0; }
.pair figure { margin: 14px 0; }
.pair figure:only-child { grid-column: 1 / -1; }
figcaption { color: var(--soft); font-size: 14px; line-height: 1.55; margin-top: 8px; max-width: 74ch; }
svg.chart { display: block; max-width: 100%; height: auto; overflow: visible; }
.narrow { display: none; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; font-size: 13.5px; color: var(--soft); margin-bottom: 8px; }
.legend > span { white-space: nowrap; }
.swatch { width: 18px; height: 12px; margin-right: 6px; vertical-align: -1px; }
svg text { font: 12px SANS; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .tick { font-size: 11.5px; }
svg .name { font-weight: 600; fill: var(--ink); }
svg .row { font-size: 13px; fill: var(--ink); }
svg .leader { stroke: var(--soft); stroke-opacity: .5; }
svg .label { fill: var(--ink); }
svg .label, svg .row { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
.grid { stroke: var(--grid); } .axis { stroke: var(--soft); stroke-opacity: .6; }
.reference { stroke: var(--soft); stroke-dasharray: 2 4; stroke-width: 1.5; stroke-linecap: round; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.dashed { stroke-dasharray: 5 5; stroke-width: 1.6; }
.range { stroke-width: 2.5; stroke-linecap: round; stroke-opacity: .5; }
.range.thin { stroke-width: 1.4; stroke-opacity: .45; }
.front { fill: none; stroke: var(--soft); stroke-opacity: .55; stroke-width: 1.4; }
.mark { stroke: var(--paper); stroke-width: 1; }
.hit { fill: transparent; } .hit:hover { fill: var(--soft); fill-opacity: .07; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14.5px; min-width: 60%; }
th, td { text-align: left; padding: 7px 18px 7px 0; border-bottom: 1px solid var(--hair); font-weight: 400;
  vertical-align: top; }
td.n, th.n { text-align: right; padding: 7px 10px; white-space: nowrap; }
tbody th { min-width: 10.5em; max-width: 26em; overflow-wrap: anywhere; }
td.w { min-width: 7em; max-width: 18em; overflow-wrap: break-word; } td.w, th.w { padding-left: 14px; }
th code { white-space: nowrap; }
tbody th.marked { padding-left: 24px; text-indent: -24px; }
td small { display: block; font-size: 12px; line-height: 1.3; color: var(--soft); }
thead th { color: var(--soft); font-size: 13px; line-height: 1.35; vertical-align: bottom; border-bottom-color:
  var(--soft); }
th button { position: relative; font: inherit; color: inherit; background: none; border: 0; padding: 0; text-align:
  inherit; cursor: pointer; }
th button:hover { color: var(--ink); }
th button::after { position: absolute; left: 100%; bottom: 0; }
th[aria-sort="ascending"] button::after { content: "↑"; } th[aria-sort="descending"] button::after { content: "↓"; }
summary { cursor: pointer; color: var(--soft); font-size: 14px; } summary:hover { color: var(--ink); }
.heat { background: color-mix(in srgb, var(--heat) calc(var(--v) * 42%), transparent); }
.pair table { min-width: 0; } .pair tbody th { min-width: 7em; } .pair td.n, .pair th.n { padding: 6px 8px; }
code, pre { font: 13px/1.6 ui-monospace, SFMono-Regular, Menlo, Consolas, "Noto Sans Mono", monospace; }
p code, figcaption code, td code, th code, li code { font-size: .9em; overflow-wrap: anywhere; }
pre { background: var(--raised); border: 1px solid var(--hair); border-radius: 8px; padding: 14px 18px; overflow-x:
  auto;
  margin: 8px 0 20px; }
footer { margin: 80px 0 48px; padding-top: 18px; border-top: 1px solid var(--hair); color: var(--soft); font-size:
  13.5px;
  overflow-wrap: anywhere; }
#tip { position: fixed; z-index: 9; pointer-events: none; background: var(--ink); color: var(--paper); font-size: 13px;
  line-height: 1.5; padding: 6px 11px; border-radius: 6px; white-space: pre-line; max-width: 300px; display: none; }
COLOURS
@media (max-width: 760px) {
  body { font-size: 15.5px; }
  main, header { padding: 0 18px; } header { padding-top: 18px; gap: 8px; }
  header button { padding: 2px 9px; min-width: 0; }
  .verdict { font-size: 21.5px; margin-top: 30px; } .verdict + .verdict { font-size: 18px; }
  .pair { grid-template-columns: 1fr; } .tiles { gap: 16px 32px; } .tile b { font-size: 25px; }
  .wide { display: none; } .narrow { display: block; } .narrow .chart { width: 100%; max-width: 480px; }
  .pair td.n, .pair th.n { padding: 6px 5px; } .pair tbody th { min-width: 6em; padding-right: 8px; }
  section { margin-top: 52px; } pre { padding: 12px; }
}
@media print {
  :root, :root[data-theme] { LIGHT --paper: #fff; } body { font-size: 10.5pt; }
  header button, nav, #tip { display: none; }
  main, header { max-width: none; padding: 0; }
  .wide { display: block; } .narrow { display: none; } .pair { grid-template-columns: 1fr 1fr; }
  .scroll { overflow: visible; }
  section { margin-top: 26pt; } figure, tr, pre { break-inside: avoid; } h2, h3 { break-after: avoid; }
  pre { white-space: pre-wrap; } * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""


def style() -> str:
    """Return the page's style sheet."""
    colours = "\n".join(
        f".c{index} {{ stroke: var(--c{index}); }} .m{index} {{ fill: var(--c{index}); }}" for index in range(8)
    )
    rules = _RULES.replace("COLOURS", colours).replace("LIGHT", _LIGHT).replace("SANS", _SANS).replace("SERIF", _SERIF)
    themes = (
        f":root {{ {_LIGHT} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}\n"
        f":root[data-theme='light'] {{ {_LIGHT} }}\n:root[data-theme='dark'] {{ {_DARK} }}"
    )
    return f"{themes}\n{rules}"
