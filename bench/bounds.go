package main

import (
	"fmt"
	"strings"
)

// bound is the limit that one measurement must not exceed, and the value to aim at. Lower is always better.
type bound struct {
	id         string // identifies the measurement in scenarios
	what       string
	format     string  // format of bound, aim and result
	bound, aim float64 // 0 means none
}

// bounds returns all bounds. Ratios compare the bridge with the floor of the same run.
func bounds() []bound {
	const ratio, mb, percent = "%.2f x", "%.0f MB", "%.2f %%"
	js, kafka := jetStreamName, kafkaName
	return []bound{
		{"replay/rate/" + js, "replay: events/s, floor / bridge", ratio, 1.4, 1.2},
		{"replay/rate/" + kafka, "replay: events/s, floor / bridge", ratio, 1.3, 1.1},
		{"replay/cpu/" + js, "replay: CPU per event", ratio, 1.35, 1.15},
		{"replay/cpu/" + kafka, "replay: CPU per event", ratio, 1.25, 1.1},
		{"churn/cpu/" + js, "churn: CPU per event", ratio, 1.6, 1.0},
		{"churn/cpu/" + kafka, "churn: CPU per event", ratio, 2, 1.4},
		{"churn/p99/" + js, "churn: p99 latency", ratio, 1.8, 1.2},
		{"churn/p99/" + kafka, "churn: p99 latency", ratio, 1.5, 1.0},
		{"snapshot/api/20000/seconds/" + js, "snapshot 20,000 x 2.6 KB: seconds", ratio, 1.15, 1},
		{"snapshot/api/20000/seconds/" + kafka, "snapshot 20,000 x 2.6 KB: seconds", ratio, 1.15, 1},
		{"snapshot/20000/seconds/" + js, "the same from a server with nothing behind it: seconds", ratio, 2, 1.3},
		{"snapshot/20000/seconds/" + kafka, "the same from a server with nothing behind it: seconds", ratio, 2, 1.3},
		{"snapshot/api/20000/peak/" + js, "snapshot 20,000 x 2.6 KB: peak memory", mb, 160, 96},
		{"snapshot/api/20000/peak/" + kafka, "snapshot 20,000 x 2.6 KB: peak memory", mb, 160, 96},
		{"snapshot/20000/peak/" + js, "the same from a server with nothing behind it: peak memory", mb, 160, 96},
		{"snapshot/20000/peak/" + kafka, "the same from a server with nothing behind it: peak memory", mb, 160, 96},
		{"snapshot/100000/peak/" + js, "snapshot 100,000 x 8 KB: peak memory", mb, 500, 250},
		{"snapshot/100000/peak/" + kafka, "snapshot 100,000 x 8 KB: peak memory", mb, 500, 250},
		{"snapshot/100000/heap/" + js, "live heap per known object of 8 KB, at rest", "%.2f KB", 1.5, 0.7},
		{"outage/cpu/" + js, "an outage that spills: CPU per event, to without", ratio, 1.5, 1.3},
		{"outage/cpu/" + kafka, "an outage that spills: CPU per event, to without", ratio, 1.5, 1.3},
		{"start/seconds", "from the start until ready, with 100,000 known objects", "%.2f s", 2, 0.5},
		{"cel/cpu", "a CEL filter on every event: CPU per event, to without", ratio, 2, 1.5},
		{"change/cpu", "payload change with patch: CPU per event, to object", ratio, 2, 1.5},
		{"many/memory", "at rest, 300 resources, 3,000 objects: memory", mb, 64, 48},
		{"many/cpu", "at rest, 300 resources, 3,000 objects: CPU of a core", percent, 0.2, 0.1},
		{"page/cpu", "ten viewers of the page: CPU of a core", percent, 1, 0.5},
		{"page/memory", "ten viewers of the page: memory", mb, 5, 2},
		{"grow/peak", "replay over 125,000 objects: peak memory", mb, 300, 200},
		{"debounce/cpu", "debounce: CPU per event, to without", ratio, 0, 0},
		{"log/cpu", "a state log: CPU per event, to without", ratio, 0, 0},
		{"grow/four", "replay: events/s, one sink / four sinks", ratio, 2, 1.4},
		{"grow/sinks", "CPU per event and sink: 16 sinks to 1", ratio, 1, 1},
	}
}

// verdicts writes the table that compares measurements with their bounds.
func (r *report) verdicts(b *strings.Builder) {
	var rows [][]string
	for _, bound := range bounds() {
		value, ok := r.measured[bound.id]
		if !ok {
			continue
		}
		verdict := "not reached"
		switch {
		case bound.bound == 0:
			verdict = "no bound"
		case value <= bound.aim:
			verdict = "aim reached"
		case value <= bound.bound:
			verdict = "bound reached"
		}
		cell := func(v float64) string {
			if v == 0 {
				return "-"
			}
			return fmt.Sprintf(bound.format, v)
		}
		broker := "-"
		for _, name := range []string{jetStreamName, kafkaName} {
			if strings.HasSuffix(bound.id, "/"+name) {
				broker = name
			}
		}
		rows = append(rows, []string{bound.what, broker, cell(bound.bound), cell(bound.aim), cell(value), verdict})
	}
	b.WriteString("## Bounds\n\nRatios are those of the bridge to the floor in the same run; medians. Less is better.\n\n")
	writeTable(b, []string{"measured", "broker", "bound", "aim", "result", ""}, rows)
}
