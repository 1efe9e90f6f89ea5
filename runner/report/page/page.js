"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const items = [...document.querySelectorAll(".decision")];

  const pressed = (kind) =>
    [...document.querySelectorAll(`#tools [data-${kind}][aria-pressed=true]`)].map((b) => b.dataset[kind]);

  function filter() {
    const moved = pressed("moved"), verdicts = pressed("verdict");
    let shown = 0;
    for (const item of items) {
      const has = item.dataset.moved.split(" ");
      const fits = moved.every((name) => has.includes(name)) &&
        (!verdicts.length || verdicts.includes(item.dataset.verdict));
      item.hidden = !fits;
      shown += fits;
    }
    $("shown").textContent = shown === items.length ? "" : `${shown} of ${items.length} shown`;
  }

  function toggle(button) {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    return on;
  }

  function tools() {
    $("tools").hidden = false;
    for (const button of document.querySelectorAll("#tools [data-moved], #tools [data-verdict]"))
      button.addEventListener("click", () => { toggle(button); filter(); });
    $("open").addEventListener("click", () => { const on = toggle($("open")); items.forEach((i) => { i.open = on; }); });
    $("order").addEventListener("click", () => {
      const best = toggle($("order"));
      const order = best ? [...items].sort((a, b) => b.dataset.score - a.dataset.score) : items;
      $("list").append(...order);
    });
  }

  function element(tag, text, name) {
    const made = document.createElement(tag);
    made.textContent = text;
    if (name) made.className = name;
    return made;
  }

  function explorer(data) {
    const select = $("problem");
    data.problems.forEach(([name], i) => { const o = element("option", name); o.value = i; select.append(o); });
    function show(i) {
      select.value = i;
      $("question").textContent = data.problems[i][1];
      $("attempts").replaceChildren(...data.candidates.filter(([, rows]) => rows[i]).map(([name, rows]) => {
        const [reward, reason, reply] = rows[i];
        const row = element("div", "", reward > 0 ? "attempt solved" : "attempt");
        const mark = reward === 1 ? "✓" : reward > 0 ? `${Math.round(reward * 100)} %` : "✗";
        row.append(element("b", name), element("span", `${mark} ${reason}`, "mark"), element("pre", reply));
        return row;
      }));
    }
    const step = (by) => show((Number(select.value) + by + data.problems.length) % data.problems.length);
    select.addEventListener("change", () => show(Number(select.value)));
    $("back").addEventListener("click", () => step(-1));
    $("next").addEventListener("click", () => step(1));
    if (data.left_out) $("left").textContent = `${data.left_out} problems are not in this page; see evals/.`;
    $("explorer").hidden = false;
    show(0);
  }

  tools();
  if ($("explorer")) explorer(JSON.parse($("data").textContent));
})();
