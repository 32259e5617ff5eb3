// Requests to this node, with the API key when one was given, and server-sent events out of a fetch.

const KEY = "p2pexo-api-key";

export class HttpError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const rememberKey = (key) => localStorage.setItem(KEY, key);

export async function request(path, options = {}) {
  const key = localStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (!response.ok) throw new HttpError(response.status, await reasonOf(response));
  return response;
}

async function reasonOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The node answered ${response.status}.`;
  }
}

// Yields {comment} and {data} as they come.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      if (block.startsWith(":")) yield { comment: block.slice(1).trim() };
      else if (block.startsWith("data: ")) yield { data: block.slice(6) };
    }
  }
}
