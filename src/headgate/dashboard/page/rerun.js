/** A task that runs again whenever it is due, such as after each revision. */

/** One run at a time. A run is never ended for the next one: steady events would leave none. It is followed by one for all events since. */
export class Rerun {
  /** @param {(abort: AbortSignal) => Promise<void>} task */
  constructor(task) {
    this.task = task;
    this.abort = new AbortController();
    this.isBusy = false;
    this.isDue = false;
  }

  end() {
    this.abort.abort();
  }

  async run() {
    this.isDue = true;
    if (this.isBusy) return;
    this.isBusy = true;
    while (this.isDue && !this.abort.signal.aborted) {
      this.isDue = false;
      await this.task(this.abort.signal);
    }
    this.isBusy = false;
  }
}
