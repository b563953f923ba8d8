// Search boxes complete the term at the caret.  Without this script a box suggests whole queries.
"use strict";

(() => {
  const MOST = 10;

  // The terms that a box knows; the box of the bar asks the page of the search for them.
  async function termsOf(input) {
    const read = (root) => [...root.querySelectorAll("#query-terms option")].map((one) => one.textContent);
    const own = input.closest("form").dataset.terms;
    if (!own) return read(document);
    const answer = await fetch(own, { credentials: "same-origin", redirect: "error" });
    return answer.ok ? read(new DOMParser().parseFromString(await answer.text(), "text/html")) : [];
  }

  // The term that ends at the caret, without its minus; none inside quotes.
  function termAt(input) {
    const before = input.value.slice(0, input.selectionStart);
    const term = /(?:^|\s)-?(\S*)$/.exec(before)[1];
    return (before.match(/"/g) || []).length % 2 ? null : term;
  }

  function complete(input) {
    const list = document.createElement("ul");
    let known = null, at = -1;
    list.className = "completions";
    list.id = `${input.id || "bar"}-completions`;
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Suggestions");
    list.hidden = true;
    input.removeAttribute("list");
    input.after(list);
    for (const [name, value] of Object.entries({
      role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list.id,
    })) input.setAttribute(name, value);

    function close() {
      list.hidden = true;
      at = -1;
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
    }

    function choose(step) {
      const all = [...list.children];
      at = (at + step + all.length) % all.length;
      all.forEach((one, place) => one.setAttribute("aria-selected", place === at));
      input.setAttribute("aria-activedescendant", all[at].id);
    }

    // With *all*, an empty term has the keys.
    async function show(all) {
      const term = termAt(input);
      known ||= termsOf(input).catch(() => []);
      const typed = (term || "").toLowerCase();
      const terms = (await known).filter((one) => one.toLowerCase() !== typed);
      const begin = terms.filter((one) => typed && one.toLowerCase().startsWith(typed));
      const inside = terms.filter((one) => typed.length > 2 && one.toLowerCase().includes(typed, 1));
      const keys = terms.filter((one) => all === true && term === "" && /[:.]$/.test(one));
      const fits = [...new Set([...begin, ...inside, ...keys])];
      if (term !== termAt(input)) return;
      list.replaceChildren(...fits.slice(0, MOST).map((one, place) => {
        const option = document.createElement("li");
        option.id = `${list.id}-${place}`;
        option.textContent = one;
        option.setAttribute("role", "option");
        return option;
      }));
      close();
      list.hidden = !fits.length;
      input.setAttribute("aria-expanded", String(!list.hidden));
    }

    // A key keeps the caret behind its colon; a whole term has a space behind it.
    function take(option) {
      const caret = input.selectionStart, term = termAt(input), text = option.textContent;
      const space = /[:.]$/.test(text) ? "" : " ";
      input.setRangeText(text + space, caret - term.length, caret, "end");
      show();
    }

    input.addEventListener("input", show);
    input.addEventListener("blur", close);
    list.addEventListener("mousedown", (event) => {
      event.preventDefault(); // the focus stays in the box
      if (event.target.closest("li")) take(event.target.closest("li"));
    });
    input.addEventListener("keydown", (event) => {
      if (list.hidden && event.key === "ArrowDown") show(true);
      if (list.hidden || event.isComposing) return;
      const chosen = list.children[at];
      const act = {
        ArrowDown: () => choose(1),
        ArrowUp: () => choose(at < 0 ? 0 : -1),
        Escape: close,
        Enter: chosen && (() => take(chosen)),
        Tab: chosen && !event.shiftKey && (() => take(chosen)),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
  }

  document.querySelectorAll("form[role=search] input[type=search]").forEach(complete);
})();
