"use strict";
(() => {
  const clauses = [...document.querySelectorAll(".clause")];
  const sections = [...document.querySelectorAll("section.of-area")];
  const buttons = [...document.querySelectorAll(".filters button")];
  const search = document.querySelector(".filters input");
  const nothing = document.querySelector(".nothing");
  const words = new Map(clauses.map((clause) => [clause, clause.querySelector("summary").textContent.toLowerCase()]));
  let chosen = "all";

  function show() {
    const wanted = search.value.toLowerCase().trim();
    let shown = 0;
    for (const clause of clauses) {
      const fits = (chosen === "all" || clause.dataset.outcome === chosen) && words.get(clause).includes(wanted);
      clause.hidden = !fits;
      shown += fits;
    }
    for (const section of sections) section.hidden = !section.querySelector(".clause:not([hidden])");
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.value === chosen));
    nothing.style.display = shown ? "none" : "block";
  }

  function follow() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !target.classList.contains("clause")) return;
    if (target.hidden) {
      chosen = "all";
      search.value = "";
      show();
    }
    target.open = true;
    target.scrollIntoView();
  }

  for (const button of buttons) button.addEventListener("click", () => { chosen = button.value; show(); });
  search.addEventListener("input", show);
  addEventListener("hashchange", follow);
  document.querySelector(".filters").hidden = false;
  show();
  follow();
})();
