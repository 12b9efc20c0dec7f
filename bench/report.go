package main

import (
	"fmt"
	"slices"
	"strings"
)

// report collects what the scenarios measured.
type report struct {
	tables   []table
	measured map[string]float64 // values by the id of their bound
}

// table is the table of a scenario.
type table struct {
	title string
	note  string
	head  []string
	rows  [][]string
}

// pairs are the samples of the floor and of the bridge, pair by pair.
type pairs struct {
	floor, bridge []sample
}

func (p pairs) each(of func(sample) float64) (floor, bridge, ratio float64) {
	var floors, bridges, ratios []float64
	for n := range p.floor {
		f, b := of(p.floor[n]), of(p.bridge[n])
		floors, bridges, ratios = append(floors, f), append(bridges, b), append(ratios, b/f)
	}
	return median(floors), median(bridges), median(ratios)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }

// measure records the value to compare with a bound.
func (r *report) measure(id string, value float64) {
	if r.measured == nil {
		r.measured = map[string]float64{}
	}
	r.measured[id] = value
}

// cell is a cell of a row, with the head of its column.
type cell struct{ head, text string }

// add adds a row to the table of a scenario.
func (r *report) add(title, note string, cells ...cell) {
	var head, row []string
	for _, c := range cells {
		head, row = append(head, c.head), append(row, c.text)
	}
	n := slices.IndexFunc(r.tables, func(t table) bool { return t.title == title })
	if n < 0 {
		n = len(r.tables)
		r.tables = append(r.tables, table{title: title, note: note, head: head})
	}
	r.tables[n].rows = append(r.tables[n].rows, row)
}

// figure returns a cell with the median of a measurement over all runs.
func figure[T any](head, format string, runs []T, value func(T) float64) cell {
	return cell{head, fmt.Sprintf(format, of(runs, value))}
}

// compared returns a cell with the values of both programs and their ratio.
func (p pairs) compared(head, format string, of func(sample) float64) cell {
	floor, bridge, ratio := p.each(of)
	return cell{head, fmt.Sprintf(format+" / "+format+" = %.2f", bridge, floor, ratio)}
}

func (r *report) replay(broker string, p pairs) {
	r.add("replay", "100,000 events over 5,000 ConfigMaps of 2.6 KB, as fast as they are read. Bridge / floor.",
		cell{"broker", broker},
		p.compared("events/s", "%.0f", sample.rate),
		p.compared("CPU us/event", "%.1f", sample.cpuPerEvent),
		p.compared("peak memory MB", "%.0f", sample.peakMB),
		p.compared("the broker's CPU us/event", "%.1f", func(s sample) float64 {
			return micros(s.brokerCPU) / float64(s.events)
		}),
		figure("bridge's live heap KB/object", "%.2f", p.bridge, func(s sample) float64 { return s.liveHeap / 5000 / 1e3 }),
	)
	_, _, rate := p.each(sample.rate)
	_, _, cpu := p.each(sample.cpuPerEvent)
	r.measure("replay/rate/"+broker, 1/rate)
	r.measure("replay/cpu/"+broker, cpu)
}

func (r *report) snapshot(broker string, from source, size int, p pairs, scaled bool) {
	heap := func(s sample) float64 { return s.liveHeap / float64(s.events) / 1e3 }
	r.add(
		"snapshot",
		"Objects exist at the start; from the start of the process until the broker holds all of them. Bridge / floor.",
		cell{"broker", broker},
		cell{"list/watch server", from.what},
		cell{"objects", fmt.Sprint(from.objects)},
		cell{"bytes each", fmt.Sprint(size)},
		p.compared("seconds", "%.2f", sample.wallSeconds),
		p.compared("CPU us/object", "%.1f", sample.cpuPerEvent),
		p.compared("peak memory MB", "%.0f", sample.peakMB),
		figure("bridge's live heap KB/object", "%.2f", p.bridge, heap),
	)
	if scaled {
		return // the bounds are for the full number of objects
	}
	_, _, ratio := p.each(sample.wallSeconds)
	id := fmt.Sprintf("snapshot/%d/%%s/%s", from.objects, broker)
	if from.watch != "" {
		id = fmt.Sprintf("snapshot/api/%d/%%s/%s", from.objects, broker)
	}
	r.measure(fmt.Sprintf(id, "seconds"), ratio)
	r.measure(fmt.Sprintf(id, "peak"), of(p.bridge, sample.peakMB))
	r.measure(fmt.Sprintf(id, "heap"), of(p.bridge, heap))
}

// markdown returns the whole report.
func (r *report) markdown() string {
	var b strings.Builder
	r.verdicts(&b)
	for _, t := range r.tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", t.title, t.note)
		writeTable(&b, t.head, t.rows)
	}
	return b.String()
}

// writeTable writes a Markdown table with aligned columns.
func writeTable(b *strings.Builder, head []string, rows [][]string) {
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for n, cell := range row {
			widths[n] = max(widths[n], len(cell))
		}
	}
	line := func(cells []string) {
		for n, cell := range cells {
			fmt.Fprintf(b, "| %-*s ", widths[n], cell)
		}
		b.WriteString("|\n")
	}
	line(head)
	for _, width := range widths {
		b.WriteString("|" + strings.Repeat("-", width+2))
	}
	b.WriteString("|\n")
	for _, row := range rows {
		line(row)
	}
}
