'use strict';
// Keeps the page up to date: reads the stream of server-sent events, and changes the sections that it contains.
{
  const byId = id => document.getElementById(id);
  const maxRows = 200;
  const silence = 25000; // ms without data after which the connection counts as broken; the bridge sends at least every 10 s
  let token = ''; // only in memory
  let selected = null; // what the tail selects; null without a tail
  let generation = 0; // of the connection
  let controller = null;
  let lastData = null; // the time of the last data

  // morph makes the content of `from` equal to that of `to`, and changes as little as possible: focus, selections and
  // open details stay. Elements with a key are found again wherever they are.
  function morph(from, to) {
    const keyed = new Map();
    for (const e of from.children) if (e.dataset.key) keyed.set(e.dataset.key, e);
    let at = from.firstChild;
    for (const next of [...to.childNodes]) {
      const key = next.dataset?.key;
      const match = key ? keyed.get(key) : at && !at.dataset?.key && at.nodeName === next.nodeName ? at : null;
      if (!match) {
        from.insertBefore(next, at);
        continue;
      }
      if (match === at) at = at.nextSibling;
      else from.insertBefore(match, at);
      if (next.nodeType !== Node.ELEMENT_NODE) {
        if (match.data !== next.data) match.data = next.data;
        continue;
      }
      for (const {name} of [...match.attributes]) {
        if (!next.hasAttribute(name) && !(name === 'open' && match.nodeName === 'DETAILS')) match.removeAttribute(name);
      }
      for (const {name, value} of next.attributes) if (match.getAttribute(name) !== value) match.setAttribute(name, value);
      morph(match, next);
    }
    while (at) {
      const after = at.nextSibling;
      at.remove();
      at = after;
    }
  }

  function parse(html) {
    const template = document.createElement('template');
    template.innerHTML = html;
    return template.content;
  }

  function apply(id, html) {
    if (id === 'tail') {
      showRows(html);
      return;
    }
    const section = byId(id);
    if (!section) return;
    const focused = document.activeElement;
    morph(section, parse(html));
    if (focused !== document.activeElement && focused.isConnected) focused.focus({preventScroll: true});
    if (id === 'verdict') showState(section.firstElementChild);
  }

  // showState shows the state in the tab of the browser, and announces it if it has changed.
  function showState(verdict) {
    const {state, health} = verdict.dataset;
    const title = `${health} · ${document.body.dataset.replica} · Deltabridge`;
    if (document.title === title) return;
    document.title = title;
    byId('icon').href = `/ui/icon/${state}.svg`;
    byId('announce').textContent = `${health}: ${verdict.querySelector('div').textContent}`;
  }

  function showRows(html) {
    const list = byId('tail-rows');
    const rows = [...parse(html).querySelectorAll('li')];
    for (const time of rows.flatMap(row => [...row.querySelectorAll('time')])) {
      const at = new Date(time.dateTime);
      time.textContent = at.toLocaleTimeString([], {hour12: false}) + '.' + String(at.getMilliseconds()).padStart(3, '0');
    }
    list.prepend(...rows.reverse());
    while (list.children.length > maxRows) list.lastElementChild.remove();
  }

  function showLink(text, state) {
    byId('link').textContent = text;
    document.body.classList.toggle('live', state === 'live');
    document.body.classList.toggle('stale', state === 'stale');
  }

  function showLost() {
    const text = lastData ? `no connection since ${lastData.toLocaleTimeString([], {hour12: false})}` : 'no connection';
    if (byId('link').textContent === text) return;
    showLink(text, 'stale');
    document.title = 'no connection · Deltabridge';
    byId('icon').href = '/ui/icon/unknown.svg';
    byId('announce').textContent = text;
  }

  const authorization = () => (token ? {Authorization: `Bearer ${token}`} : {});
  const maySee = () => token !== '' || 'local' in document.body.dataset;
  const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

  function showAccess(problem) {
    byId('access').hidden = maySee();
    byId('token-problem').hidden = !problem;
    byId('token-problem').textContent = problem;
    if (problem) byId('token-form').elements.token.focus();
  }

  // read passes the events of a stream on until it ends.
  async function read(response, mine) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ''; ;) {
      const timer = setTimeout(() => controller.abort(), silence);
      const {done, value} = await reader.read();
      clearTimeout(timer);
      if (done || mine !== generation) return;
      lastData = new Date();
      const events = (text + value).split('\n\n');
      text = events.pop();
      for (const event of events) {
        const lines = event.split('\n');
        if (!lines[0].startsWith('event: ')) continue;
        apply(lines[0].slice(7), lines.slice(1).map(line => line.slice(6)).join('\n'));
      }
    }
  }

  // connect keeps a stream open until the next call.
  async function connect() {
    const mine = ++generation;
    controller?.abort();
    for (let wait = 500; mine === generation; wait = Math.min(2 * wait, 8000)) {
      controller = new AbortController();
      try {
        const path = selected ? '/ui/tail?' + selected : '/ui/stream';
        const response = await fetch(path, {headers: authorization(), signal: controller.signal, cache: 'no-store'});
        if (token && (response.status === 401 || response.status === 403)) {
          token = '';
          endTail();
          showAccess(await response.text());
          continue;
        }
        if (response.ok) {
          showLink('live', 'live');
          wait = 250;
          await read(response, mine);
        }
      } catch { /* the bridge is not reachable, or the stream was aborted */ }
      if (mine !== generation) return;
      await sleep(wait);
      if (mine === generation && wait > 500) showLost();
    }
  }

  // query returns the fields of a form that are not empty.
  function query(form) {
    const fields = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value.trim()) fields.set(name, value.trim());
    return fields;
  }

  function startTail() {
    if (!maySee()) {
      byId('token-form').elements.token.focus();
      return;
    }
    selected = query(byId('tail-form'));
    byId('tail-stop').disabled = false;
    byId('tail-rows').replaceChildren();
    connect();
  }

  function endTail() {
    selected = null;
    byId('tail-stop').disabled = true;
  }

  byId('tail-form').addEventListener('submit', event => {
    event.preventDefault();
    startTail();
  });

  byId('tail-stop').addEventListener('click', event => {
    endTail();
    event.target.form.querySelector('button').focus();
    connect();
  });

  byId('token-form').addEventListener('submit', event => {
    event.preventDefault();
    token = event.target.elements.token.value.trim();
    event.target.reset();
    showAccess('');
    startTail();
  });

  connect();
}
