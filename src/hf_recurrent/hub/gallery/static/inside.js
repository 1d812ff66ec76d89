"use strict";

// what an example looks like inside, step by step: data of `hub/inside.py`, shown where `data-inside` is
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const CELL = 10;
  const MARGIN = 46;
  const MOST_NAMED = 3;
  const LETTERS = 9;

  function make(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  function draw(name, attributes, ...children) {
    const drawn = document.createElementNS(SVG, name);
    Object.entries(attributes).forEach(([key, value]) => drawn.setAttribute(key, value));
    drawn.append(...children);
    return drawn;
  }

  const percent = (share) => `${Math.round(100 * share)}%`;
  const answerText = ([name, share]) => (share === null ? name : `${name} (${percent(share)})`);
  const quoted = (token) => `\u201c${token}\u201d`;
  const cut = (token) => (token.length > LETTERS ? `${token.slice(0, LETTERS - 1)}\u2026` : token);
  // zeros at the end of a row are not stored
  const at = (row, place) => (row && row[place]) || 0;

  // the step after which the answer is settled under a rule
  const stopOf = (run, readout) => (readout === null ? Math.max(...run.steps) : run.steps[readout]);
  const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  function ruleText(run, most) {
    const [least, deepest] = [Math.min(...run.steps), Math.max(...run.steps)];
    const steps = least === deepest ? `${deepest} of ${most}` : `${least} to ${deepest} of ${most}`;
    return `${run.label}${run.own ? ", this checkpoint\u2019s own" : ""}: ${steps}`;
  }

  class Viewer {
    constructor(inside, right) {
      this.inside = inside;
      this.right = right;
      this.size = inside.tokens.length;
      this.most = inside.passes[inside.runs[0].pass].attention.length;
      this.run = inside.runs.find((run) => run.own) || inside.runs[0];
      this.step = 1;
      this.reader = inside.readout === null ? 0 : inside.readout;
      this.element = make("div", { className: "look" });
      this.build();
      this.show();
    }

    build() {
      const { inside, most } = this;
      const stage = inside.stage;
      this.rule = make("select", { className: "rule" });
      inside.runs.forEach((run, number) => this.rule.append(new Option(ruleText(run, most), number)));
      this.rule.value = inside.runs.indexOf(this.run);
      this.rule.addEventListener("change", () => {
        this.run = inside.runs[this.rule.value];
        this.show();
      });
      this.slider = make("input", { type: "range", className: "steps", min: 1, max: most, step: 1, value: 1 });
      this.slider.setAttribute("aria-label", stage === "step" ? "Depth step" : "Layer");
      this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
      this.back = make("button", { type: "button", className: "back" }, "\u2039");
      this.back.setAttribute("aria-label", `Previous ${stage}`);
      this.back.addEventListener("click", () => this.go(this.step - 1));
      this.next = make("button", { type: "button", className: "next" }, "\u203a");
      this.next.setAttribute("aria-label", `Next ${stage}`);
      this.next.addEventListener("click", () => this.go(this.step + 1));
      this.count = make("output", { className: "count" });
      this.said = make("p", { className: "said" });
      this.said.setAttribute("role", "status");
      this.read = make("p", { className: "read" });
      this.tokens = make("div", { className: "tokens" });
      this.tokens.setAttribute("role", "group");
      this.tokens.setAttribute("aria-label", "Tokens: choose one to see what it attends to");
      this.chips = inside.tokens.map((token, place) => this.chip(token, place));
      this.tokens.append(...this.chips);
      this.answers = make("tbody", {});
      const heads = [stage === "step" ? "Step" : "Layer", inside.next ? "Next token" : "Prediction", "Confidence", "Would stop here"];
      const head = make("tr", {}, ...heads.map((title) => make("th", { scope: "col" }, title)));
      head.cells[0].classList.add("number");
      const table = make("table", { className: "answers" }, make("thead", {}, head), this.answers);
      const scroll = make("div", { className: "scroll", tabIndex: 0 }, table);
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", `Answers by ${inside.stage}`);
      this.rows = Array.from({ length: most }, (_, index) => this.row(index + 1));
      this.answers.append(...this.rows);
      const caption = make("figcaption", {}, "Attention: rows attend to columns, by the head that does so most.");
      this.element.append(
        make("label", { className: "choice" }, make("span", {}, "Stopping rule"), this.rule),
        make("div", { className: "slide" }, this.back, this.slider, this.next, this.count),
        this.said,
        this.tokens,
        this.read,
        make("div", { className: "sides" }, make("figure", { className: "attention" }, this.map(), caption), scroll),
      );
    }

    chip(token, place) {
      const bar = make("span", { className: "weight" });
      const button = make("button", { type: "button", className: "token" }, make("span", {}, token || "\u00a0"), bar);
      button.addEventListener("click", () => this.choose(place));
      button.addEventListener("pointerenter", () => this.tell(place));
      button.addEventListener("pointerleave", () => this.tell(this.reader));
      return button;
    }

    row(step) {
      const stops = this.inside.runs.filter((run) => stopOf(run, this.inside.readout) === step);
      const names = stops.map((run) => run.label).join("; ");
      // after the last step a rule has nothing left to decide
      const text = names && step === this.most ? `not before: ${names}` : names;
      const head = make("th", { scope: "row", className: "number" }, String(step));
      const row = make("tr", {}, head, make("td", {}), make("td", { className: "confidence" }), make("td", {}, text));
      row.addEventListener("click", () => this.go(step));
      return row;
    }

    // rows attend to columns
    map() {
      const side = MARGIN + CELL * this.size + 2;
      this.cells = [];
      this.marks = [];
      const drawn = draw("svg", { viewBox: `0 0 ${side} ${side}`, class: "map", role: "img" });
      drawn.setAttribute("aria-label", "Map of attention: rows attend to columns");
      drawn.style.setProperty("--side", this.size);
      this.inside.tokens.forEach((token, place) => {
        const start = MARGIN + CELL * place;
        const middle = start + 0.75 * CELL;
        const text = { "font-size": 7, fill: "currentColor" };
        const column = `translate(${middle} ${MARGIN - 3}) rotate(-90)`;
        drawn.append(
          draw("text", { ...text, x: MARGIN - 3, y: middle, "text-anchor": "end" }, cut(token)),
          draw("text", { ...text, transform: column }, cut(token)),
        );
        const cells = this.inside.tokens.map((_, other) =>
          draw("rect", { class: "cell", x: MARGIN + CELL * other, y: start, width: CELL, height: CELL }),
        );
        const mark = draw("rect", { class: "mark", x: MARGIN, y: start, width: CELL * this.size, height: CELL });
        const row = draw("g", {}, ...cells);
        row.addEventListener("click", () => this.choose(place));
        this.cells.push(cells);
        this.marks.push(mark);
        drawn.append(row);
      });
      drawn.append(...this.marks);
      return drawn;
    }

    go(step) {
      this.step = Math.min(Math.max(step, 1), this.most);
      this.show();
    }

    choose(place) {
      this.reader = place;
      this.show();
    }

    lives(place) {
      return this.step <= this.run.steps[place];
    }

    // where halted tokens go on changing for others, they go on attending
    attends(place) {
      return this.lives(place) || (!this.run.freezes && this.step <= Math.max(...this.run.steps));
    }

    rowOf(place) {
      const pass = this.inside.passes[this.run.pass];
      return this.attends(place) && this.step <= pass.attention.length ? pass.attention[this.step - 1][place] : [];
    }

    answerAfter(step) {
      const { answers } = this.inside.passes[this.run.pass];
      if (step >= stopOf(this.run, this.inside.readout)) {
        return this.run.answer;
      }
      // layers with weights of their own have one answer, after the last
      return answers.length > 1 ? answers[Math.min(step, answers.length) - 1] : null;
    }

    show() {
      const { inside, run, step } = this;
      const live = inside.tokens.filter((_, place) => this.lives(place)).length;
      this.slider.value = step;
      this.slider.setAttribute("aria-valuetext", `${inside.stage} ${step} of ${this.most}`);
      this.count.value = `${inside.stage} ${step} of ${this.most}`;
      this.back.disabled = step === 1;
      this.next.disabled = step === this.most;
      const answer = this.answerAfter(step);
      const what = inside.next ? "next token" : "prediction";
      const settled = step >= stopOf(run, inside.readout) ? ", settled" : "";
      const right = this.right === null ? "" : `; right answer: ${this.right}`;
      const alive = `${live} of ${this.size} tokens alive`;
      const found = answer === null ? "" : `; ${what}: ${answerText(answer)}${settled}${right}`;
      this.said.textContent = `${alive}; ${meanOf(run.steps).toFixed(1)} ${inside.stage}s on average${found}.`;
      this.rows.forEach((row, index) => this.fill(row, index + 1));
      this.chips.forEach((chip, place) => {
        const stopped = !this.lives(place);
        chip.classList.toggle("stopped", stopped);
        chip.setAttribute("aria-pressed", String(place === this.reader));
        const after = stopped ? `stopped after ${run.steps[place]}` : "alive";
        chip.setAttribute("aria-label", `${place}: ${inside.tokens[place]}, ${after}`);
      });
      this.cells.forEach((cells, place) => {
        const weights = this.rowOf(place);
        cells.forEach((cell, other) => {
          cell.style.fillOpacity = at(weights, other) / 100;
        });
        this.marks[place].classList.toggle("chosen", place === this.reader);
      });
      this.tell(this.reader);
    }

    fill(row, step) {
      const answer = this.answerAfter(step);
      const [, name, confidence] = row.cells;
      name.textContent = answer === null ? "" : answer[0];
      confidence.replaceChildren();
      if (answer !== null && answer[1] !== null) {
        const bar = make("span", { className: "share" });
        bar.style.setProperty("--share", answer[1]);
        confidence.append(bar, percent(answer[1]));
      }
      row.classList.toggle("now", step === this.step);
      row.classList.toggle("after", step > stopOf(this.run, this.inside.readout));
      if (step === this.step) {
        row.setAttribute("aria-current", "step");
      } else {
        row.removeAttribute("aria-current");
      }
    }

    // bars under the tokens, and a sentence, of what one token attends to
    tell(place) {
      const { tokens, passes } = this.inside;
      const weights = this.rowOf(place);
      this.chips.forEach((chip, other) => {
        chip.lastElementChild.style.setProperty("--share", at(weights, other) / 100);
      });
      const named = tokens
        .map((token, other) => [at(weights, other), `${quoted(token)} at ${other} (${at(weights, other)}%)`])
        .filter(([weight]) => weight > 0)
        .sort((first, second) => second[0] - first[0])
        .slice(0, MOST_NAMED)
        .map(([, text]) => text);
      const reader = `${quoted(tokens[place])} at ${place}`;
      if (!this.attends(place)) {
        this.read.textContent = `${reader} has stopped, after ${this.run.steps[place]}.`;
        return;
      }
      const { gates } = passes[this.run.pass];
      const gate = gates === null ? "" : `; its gate is ${at(gates[this.step - 1], place)}% open`;
      this.read.textContent = `${reader} attends most to ${named.join(", ") || "nothing"}${gate}.`;
    }
  }

  function showStored(mount) {
    const examples = JSON.parse(mount.dataset.inside);
    const choice = make("select", { className: "example" });
    const place = make("div", {});
    const textOf = ({ text, text_pair: pair }) => (pair === null ? text : `${text} | ${pair}`);
    examples.forEach((example, number) => choice.append(new Option(textOf(example), number)));
    const show = () => {
      const { inside, answer } = examples[choice.value];
      place.replaceChildren(new Viewer(inside, answer).element);
    };
    choice.addEventListener("change", show);
    mount.append(make("label", { className: "choice" }, make("span", {}, "Input"), choice), place);
    mount.hidden = false;
    show();
  }

  function answerForm(form) {
    const place = form.parentElement.querySelector(".inside");
    const problem = form.querySelector(".problem");
    const [button] = form.getElementsByTagName("button");

    async function ask() {
      const fields = Object.fromEntries(new FormData(form));
      let response;
      try {
        const headers = { "Content-Type": "application/json" };
        response = await fetch("explain", { method: "POST", headers, body: JSON.stringify(fields) });
      } catch {
        return "The server does not answer: is it still running?";
      }
      if (!response.ok) {
        return response.text();
      }
      place.replaceChildren(new Viewer(await response.json(), null).element);
      return "";
    }

    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      problem.textContent = "";
      form.setAttribute("aria-busy", "true");
      problem.textContent = await ask();
      form.removeAttribute("aria-busy");
      button.disabled = false;
    });
    form.hidden = false;
  }

  document.querySelectorAll("[data-inside]").forEach(showStored);
  document.querySelectorAll("form.ask").forEach(answerForm);
})();
