/** Numbers, sizes and times for people. Times of the cluster are milliseconds since 1970, -1 where there is none. */

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** @param {number} count */
export function number(count) {
  return count.toLocaleString("en-US", { maximumFractionDigits: 1 });
}

/** @param {number} bytes */
export function size(bytes) {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${SIZES[unit]}`;
}

/** How long something takes: "340 ms", "12.3 s", "4 min 05 s", "3 h 20 min". @param {number} millis */
export function duration(millis) {
  if (millis < 0) return "";
  if (millis < 1000) return `${Math.round(millis)} ms`;
  const seconds = millis / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${two(Math.floor(seconds % 60))} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${two(minutes % 60)} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {number} value */
function two(value) {
  return String(value).padStart(2, "0");
}

/** The time of the day, with the date if it is another day, in the zone of the browser. @param {number} millis */
export function moment(millis) {
  if (millis <= 0) return "";
  const at = new Date(millis);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return at.toDateString() === new Date().toDateString() ? clock : `${day(at)} ${clock}`;
}

/** @param {Date} at */
function day(at) {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** The exact time with its zone, for a tooltip. @param {number} millis */
export function exact(millis) {
  if (millis <= 0) return "";
  const at = new Date(millis);
  return `${at.toString()} (${at.toISOString()})`;
}

/** "1 job", "2 jobs". @param {number} count @param {string} noun @param {string} [several] */
export function counted(count, noun, several = `${noun}s`) {
  return `${number(count)} ${count === 1 ? noun : several}`;
}

/** @param {number} fraction */
export function percent(fraction) {
  return `${Math.round(100 * fraction)} %`;
}
