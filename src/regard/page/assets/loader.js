// Unpacks the front end and runs it, or says why it cannot. `new Response` only collects a stream: nothing is asked of
// any network.
(async () => {
  const trouble = (reason) => {
    const line = document.getElementById("trouble");
    line.textContent = `The pictures of this page cannot be drawn: ${reason}`;
    line.hidden = false;
  };
  try {
    const packed = Uint8Array.from(atob(document.getElementById("program").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const script = document.createElement("script");
    script.type = "module";
    script.textContent = await new Response(stream).text();
    window.addEventListener("error", ({ message }) => trouble(message));
    document.body.append(script);
  } catch (error) {
    trouble(typeof DecompressionStream === "undefined" ? "it needs a browser of 2023 or later." : error.message);
  }
})();
