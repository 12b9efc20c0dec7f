package delivery

import (
	"fmt"
	"time"
)

// restorePause pauses the drain if the sink was paused when the previous process ended. It is called before the drain
// runs.
func (d *Delivery) restorePause() {
	if since := d.options.Store.PausedSince(d.options.Sink); !since.IsZero() {
		d.Drain.Pause(since)
		d.Log.Warn("sink is still paused; run bridge resume to continue", "since", since)
	}
}

// SetPaused pauses or resumes the sink. It returns a sentence that describes what has changed.
func (d *Delivery) SetPaused(paused bool) (answer string, err error) {
	d.pausing.Lock()
	defer d.pausing.Unlock()
	since := d.Drain.PausedSince()
	switch {
	case paused && !since.IsZero():
		return fmt.Sprintf("%s: already paused since %s", d.options.Sink, since.UTC().Format(time.RFC3339)), nil
	case !paused && since.IsZero():
		return d.options.Sink + ": is not paused", nil
	}
	now := time.Now()
	if !paused {
		now = time.Time{}
	}
	if err := d.options.Store.SetPaused(d.options.Sink, now); err != nil {
		return "", fmt.Errorf("sink %s: nothing was changed, because the change cannot be stored: %w", d.options.Sink, err)
	}
	waiting := d.Queue.Stats().Items
	if !paused {
		d.Drain.Resume()
		d.Log.Info("sink resumed", "waiting", waiting)
		return fmt.Sprintf("%s: resumed, %d events wait", d.options.Sink, waiting), nil
	}
	d.Log.Info("sink paused", "waiting", waiting)
	d.Drain.Pause(now)
	return fmt.Sprintf("%s: paused, %d events wait", d.options.Sink, waiting), nil
}
