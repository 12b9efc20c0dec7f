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

// table returns the scenario's table, so that the caller can add a row.
func (r *report) table(title, note string, head ...string) *table {
	for n := range r.tables {
		if r.tables[n].title == title {
			return &r.tables[n]
		}
	}
	r.tables = append(r.tables, table{title: title, note: note, head: head})
	return &r.tables[len(r.tables)-1]
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// compared returns a cell with the values of both programs and their ratio.
func (p pairs) compared(format string, of func(sample) float64) string {
	floor, bridge, ratio := p.each(of)
	return fmt.Sprintf(format+" / "+format+" = %.2f", bridge, floor, ratio)
}

func (r *report) replay(broker string, p pairs) {
	t := r.table("replay", "100,000 events over 5,000 ConfigMaps of 2.6 KB, as fast as they are read. Bridge / floor.",
		"broker", "events/s", "CPU us/event", "peak memory MB", "the broker's CPU us/event", "bridge's live heap KB/object")
	_, heap, _ := p.each(func(s sample) float64 { return s.liveHeap / 5000 / 1e3 })
	t.row(
		broker,
		p.compared("%.0f", sample.rate),
		p.compared("%.1f", sample.cpuPerEvent),
		p.compared("%.0f", sample.peakMB),
		p.compared(
			"%.1f",
			func(s sample) float64 { return micros(s.brokerCPU) / float64(s.events) },
		),
		fmt.Sprintf("%.2f", heap),
	)
	_, _, rate := p.each(sample.rate)
	_, _, cpu := p.each(sample.cpuPerEvent)
	r.measure("replay/rate/"+broker, 1/rate)
	r.measure("replay/cpu/"+broker, cpu)
}

func (r *report) snapshot(broker string, from source, size int, p pairs, scaled bool) {
	t := r.table(
		"snapshot",
		"Objects exist at the start; from the start of the process until the broker holds all of them. Bridge / floor.",
		"broker",
		"list/watch server",
		"objects",
		"bytes each",
		"seconds",
		"CPU us/object",
		"peak memory MB",
		"bridge's live heap KB/object",
	)
	seconds := sample.wallSeconds
	peak := sample.peakMB
	_, heap, _ := p.each(func(s sample) float64 { return s.liveHeap / float64(s.events) / 1e3 })
	t.row(
		broker,
		from.what,
		fmt.Sprint(from.objects),
		fmt.Sprint(size),
		p.compared("%.2f", seconds),
		p.compared("%.1f", sample.cpuPerEvent),
		p.compared("%.0f", peak),
		fmt.Sprintf("%.2f", heap),
	)
	if scaled {
		return // the bounds are for the full number of objects
	}
	_, mb, _ := p.each(peak)
	_, _, ratio := p.each(seconds)
	id := fmt.Sprintf("snapshot/%d/%%s/%s", from.objects, broker)
	if from.watch != "" {
		id = fmt.Sprintf("snapshot/api/%d/%%s/%s", from.objects, broker)
	}
	r.measure(fmt.Sprintf(id, "seconds"), ratio)
	r.measure(fmt.Sprintf(id, "peak"), mb)
	r.measure(fmt.Sprintf(id, "heap"), heap)
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
