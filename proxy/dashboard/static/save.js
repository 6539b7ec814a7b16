/** Files that a person takes away. */

/**
 * Let the browser save a text as a file.
 *
 * @param {string} name
 * @param {string} type
 * @param {string | Blob} content
 */
export function save(name, type, content) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
