// Keys for people who keep their hands on the keyboard: / j k x ?  All else works without them.
"use strict";

(() => {
  const STORED = "headrace-keys";
  const dialog = document.querySelector("dialog[data-keys]");
  const button = document.querySelector("[data-keys-button]");
  if (!dialog || !button) return;
  const onOff = dialog.querySelector("[data-keys-switch]");

  function stored() {
    try { return localStorage.getItem(STORED) !== "off"; } catch { return true; }
  }

  function store(on) {
    try { localStorage.setItem(STORED, on ? "on" : "off"); } catch { /* no storage */ }
  }

  // The link that a row is opened by.
  const ways = "a.call, .id a, th[scope=row] a, a";

  function rows() {
    const all = document.querySelectorAll("main table tbody tr");
    return [...all].filter((row) => row.querySelector(ways) && row.checkVisibility());
  }

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const here = all.findIndex((row) => row.contains(document.activeElement));
    const there = here < 0 ? (step > 0 ? 0 : all.length - 1) : here + step;
    const row = all[Math.min(Math.max(there, 0), all.length - 1)];
    const way = row.querySelector(ways);
    way.focus();
    row.scrollIntoView({ block: "nearest" });
  }

  function tick() {
    const row = document.activeElement.closest("tr");
    const box = row && row.querySelector("td.tick input");
    if (!box) return;
    box.checked = !box.checked;
    box.dispatchEvent(new Event("change", { bubbles: true }));
  }

  function search() {
    const field = document.querySelector("main input[type=search]") || document.querySelector("input[type=search]");
    if (field) { field.focus(); field.select(); }
  }

  const keys = { "/": search, j: () => move(1), k: () => move(-1), x: tick, "?": () => dialog.showModal() };

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]), select, textarea, dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const act = stored() && keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  button.hidden = false;
  button.addEventListener("click", () => dialog.showModal());
  dialog.querySelector("[data-keys-close]").addEventListener("click", () => dialog.close());
  onOff.checked = stored();
  onOff.addEventListener("change", () => store(onOff.checked));

  // Behind the sign-in, what was typed is shown again in its own page: nothing is carried out.
  const again = document.querySelector("[data-go-on] form");
  if (again && again.querySelector('input[name="resume"]')) again.submit();
})();
