"use strict";
// The values under the pointer, and news of a run that is watched. Only text is ever written.
const shortly = (value) => {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return Number((value / size).toPrecision(3)) + unit;
  }
  return String(Number(value.toPrecision(4)));
};

const clear = () => {
  for (const chart of document.querySelectorAll(".chart[data-values]")) {
    chart.querySelector(".cursor").style.display = "none";
    chart.querySelector("output").textContent = "";
  }
};

document.addEventListener("pointermove", (event) => {
  const canvas = event.target.closest ? event.target.closest(".chart[data-values] .canvas") : null;
  clear();
  if (!canvas) return;
  const chart = canvas.closest(".chart"), box = canvas.getBoundingClientRect();
  const {ends: [low, high], lines} = JSON.parse(chart.dataset.values);
  const pointed = low + (high - low) * (event.clientX - box.left) / box.width;
  let nearest = null;
  for (const {x} of lines) {
    for (const step of x) if (nearest === null || Math.abs(step - pointed) < Math.abs(nearest - pointed)) nearest = step;
  }
  if (nearest === null) return;
  const words = [shortly(nearest)];
  for (const {label, x, y} of lines) {
    const value = y[x.indexOf(nearest)];
    if (value !== undefined && value !== null) words.push(lines.length > 1 ? label + " " + shortly(value) : shortly(value));
  }
  chart.querySelector("output").textContent = words.join(" · ");
  const cursor = chart.querySelector(".cursor");
  cursor.style.left = 100 * (nearest - low) / (high - low) + "%";
  cursor.style.display = "block";
});

const seconds = Number(document.documentElement.dataset.live || 0);
if (seconds) {
  let version = "";
  const news = async () => {
    const state = document.getElementById("live");
    try {
      const answer = await fetch("main?have=" + version, {cache: "no-store"});
      if (answer.status === 200) {
        const place = window.scrollY, open = [...document.querySelectorAll("details")].map((one) => one.open);
        const main = document.querySelector("main");
        const fresh = await answer.text();
        main.innerHTML = fresh;
        document.querySelectorAll("details").forEach((one, i) => { one.open = open[i] ?? one.open; });
        window.scrollTo(0, place);
        version = answer.headers.get("X-Version");
      }
      state.textContent = "Live: up to date.";
    } catch {
      state.textContent = "The watch has ended: this page no longer changes.";
    }
    setTimeout(news, 1000 * seconds);
  };
  news();
}
