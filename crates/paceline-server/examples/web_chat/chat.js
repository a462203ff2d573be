"use strict";
const [state, said, form, text] = ["state", "said", "form", "text"].map((id) => document.getElementById(id));
let socket, pause = 500;

function show(line) {
  const item = document.createElement("li");
  item.textContent = line;
  said.append(item);
  while (said.children.length > 500) said.firstChild.remove();
  said.scrollTop = said.scrollHeight;
}

function connect() {
  socket = new WebSocket(location.href.replace(/^http/, "ws").replace(/[^/]*$/, "ws"));
  socket.onopen = () => { state.textContent = "connected"; pause = 500; };
  socket.onmessage = (event) => show(event.data);
  socket.onclose = (event) => {
    state.textContent = "connection closed (" + event.code + "), connecting again";
    setTimeout(connect, pause);
    pause = Math.min(2 * pause, 15000);
  };
}

form.onsubmit = (event) => {
  event.preventDefault();
  if (text.value && socket.readyState === WebSocket.OPEN) {
    socket.send(text.value);
    text.value = "";
  }
};
connect();
