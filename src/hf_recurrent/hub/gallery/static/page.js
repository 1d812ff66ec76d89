"use strict";

(() => {
  const byId = (name) => document.getElementById(`gallery--${name}`);
  const table = byId("table");
  const heads = [...table.tHead.rows[0].cells];
  const checkpoints = [...table.tBodies];
  const filter = byId("filter");
  const all = byId("all");

  const toggleOf = (checkpoint) => checkpoint.querySelector(".toggle");
  const isOpen = (checkpoint) => toggleOf(checkpoint).getAttribute("aria-expanded") === "true";

  function setOpen(checkpoint, open) {
    toggleOf(checkpoint).setAttribute("aria-expanded", String(open));
    checkpoint.querySelector(".details").hidden = !open;
    all.textContent = checkpoints.every(isOpen) ? "Close all" : "Open all";
  }

  // the address names what was opened last, without an entry in the history for each click
  function setAddress(name) {
    const address = name ? `#${encodeURIComponent(name)}` : location.pathname + location.search;
    history.replaceState(null, "", address);
  }

  function toggle(checkpoint) {
    const open = !isOpen(checkpoint);
    setOpen(checkpoint, open);
    if (open) {
      setAddress(checkpoint.id);
    } else if (addressed() === checkpoint) {
      setAddress("");
    }
  }

  function addressed() {
    let name;
    try {
      name = decodeURIComponent(location.hash.slice(1));
    } catch {
      return undefined;
    }
    return checkpoints.find((checkpoint) => checkpoint.id === name);
  }

  function openAddressed() {
    const checkpoint = addressed();
    if (!checkpoint) {
      return;
    }
    if (checkpoint.hidden) {
      filter.value = "";
      applyFilter();
    }
    setOpen(checkpoint, true);
    checkpoint.scrollIntoView({ block: "start" });
  }

  function compare(first, second, column, sign) {
    const [a, b] = [first, second].map((checkpoint) => checkpoint.rows[0].cells[column].dataset.sort);
    if (heads[column].dataset.kind === "number") {
      return sign * (Number(a) - Number(b));
    }
    return sign * a.localeCompare(b, "en", { numeric: true, sensitivity: "base" });
  }

  function sortBy(column) {
    const descending = heads[column].getAttribute("aria-sort") === "ascending";
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
    // always from the order of rank, which equal ones keep
    table.append(...[...checkpoints].sort((first, second) => compare(first, second, column, descending ? -1 : 1)));
  }

  function applyFilter() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    checkpoints.forEach((checkpoint) => {
      const text = checkpoint.rows[0].textContent.toLowerCase();
      checkpoint.hidden = !words.every((word) => text.includes(word));
      shown += checkpoint.hidden ? 0 : 1;
    });
    byId("none").hidden = shown > 0;
    byId("count").textContent = `${shown} of ${checkpoints.length} shown`;
  }

  function select(element) {
    const range = document.createRange();
    range.selectNodeContents(element);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }

  async function copy(block) {
    const code = block.querySelector("code");
    const status = block.querySelector(".status");
    try {
      await navigator.clipboard.writeText(code.textContent);
      status.textContent = "Copied";
    } catch {
      // a browser may refuse the clipboard; what is selected can still be copied by hand
      select(code);
      status.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => {
      status.textContent = "";
    }, 4000);
  }

  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => sortBy(column)));
  checkpoints.forEach((checkpoint) => {
    checkpoint.rows[0].addEventListener("click", () => {
      // text of a row can be selected without opening it
      if (getSelection().isCollapsed) {
        toggle(checkpoint);
      }
    });
    setOpen(checkpoint, false);
  });
  document.querySelectorAll(".panel pre").forEach((program) => {
    const block = document.createElement("div");
    block.className = "code";
    block.innerHTML = '<button type="button" class="copy">Copy</button><span class="status" role="status"></span>';
    program.replaceWith(block);
    program.tabIndex = 0;
    block.append(program);
    block.querySelector(".copy").addEventListener("click", () => copy(block));
  });
  all.addEventListener("click", () => {
    const open = !checkpoints.every(isOpen);
    checkpoints.forEach((checkpoint) => setOpen(checkpoint, open));
  });
  filter.addEventListener("input", applyFilter);
  addEventListener("hashchange", openAddressed);

  document.documentElement.classList.add("js");
  byId("controls").hidden = false;
  applyFilter();
  openAddressed();
})();
