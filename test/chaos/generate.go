package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Resources are what scenarios change. The API server of the runner has a watch cache for those that Cached names
// alone: it forgets the history of the others when etcd is compacted.
func Resources() []string { return []string{"configmaps", "secrets", "serviceaccounts", boxes} }

// Cached are the resources that have a watch cache.
func Cached() []string { return []string{"configmaps", boxes} }

const boxes = "boxes.chaos.example.com"

// Options say what Generate may draw.
type Options struct {
	Kafka bool // Kafka can be used
	Disk  bool // the disk of the state can be filled
	// Reloads makes most configurations change while the bridge runs.
	Reloads bool
}

// Generate draws a scenario. The same seed and options give the same scenario.
func Generate(seed uint64, o Options) Scenario {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x64656c7461)), o: o}
	s := Scenario{Seed: seed, Kafka: o.Kafka}
	g.config = g.draw()
	s.Config = g.config.Clone()
	if g.IntN(3) == 0 {
		g.write(20 + g.IntN(60)) // before the bridge's first list
		g.add(Step{Action: Await})
	}
	g.add(Step{Action: Start})
	motifs := []func(){
		g.outage,
		g.outage,
		g.outageAndRestart,
		g.outageAndRestart,
		g.lostHistory,
		g.lostHistory,
		g.lostHistory,
		g.reconfigure,
		g.reconfigure,
		g.reconfigureTwice,
		g.relabel,
		g.relabel,
		g.restarts,
		g.flap,
		g.apiServer,
		g.resync,
		g.pauseSink,
		g.loseCheckpoint,
	}
	if o.Disk {
		motifs = append(motifs, g.fullDisk)
	}
	if o.Kafka {
		motifs = append(motifs, g.lateBytes, g.lateBytes)
	}
	if o.Reloads {
		motifs = []func(){
			g.reload, g.reload, g.reload, g.reload, g.reload, g.reload, g.outage, g.flap, g.restarts, g.resync, g.pauseSink,
			g.reconfigure,
		}
	}
	for range 1 + g.IntN(2) {
		for range 1 + g.IntN(3) {
			g.write(40 + g.IntN(260))
			g.pause(500)
			motifs[g.IntN(len(motifs))]()
		}
		if g.IntN(3) == 0 {
			g.add(Step{Action: Settle})
		}
	}
	s.Steps = g.steps
	return s
}

type generator struct {
	*rand.Rand

	o      Options
	config Config
	gone   []Sink // that were removed
	steps  []Step
}

func (g *generator) add(s ...Step) { g.steps = append(g.steps, s...) }

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// some draws a part of a list, never none.
func some[T any](g *generator, of []T) []T {
	of = slices.Clone(of)
	g.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of[:1+g.IntN(len(of))]
}

func namespaces() []string { return []string{"a", "b", "c"} }

func zones() []string { return []string{"east", "west"} }

func (g *generator) draw() Config {
	c := Config{Watch: g.watch(), Zones: map[string]string{}}
	for _, n := range namespaces() {
		c.Zones[n] = pick(g, zones()...)
	}
	for n := range 2 + g.IntN(2) {
		c.Sinks = append(c.Sinks, g.sink(fmt.Sprintf("s%d", n)))
	}
	return c
}

func (g *generator) watch() []Watch {
	resources := some(g, Resources())
	switch g.IntN(5) {
	case 0, 1:
		return []Watch{{Resources: resources}}
	case 2:
		return []Watch{{Resources: resources, Namespaces: some(g, namespaces())}}
	case 3: // entries that overlap, without selectors
		return []Watch{
			{Resources: resources, Namespaces: some(g, namespaces())},
			{Resources: some(g, Resources()), Namespaces: some(g, namespaces())},
		}
	default:
		team := pick(g, "red", "blue")
		if !g.chance(40) {
			return []Watch{{Resources: resources, Team: team}}
		}
		places := namespaces() // another selector in other namespaces
		g.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
		at := 1 + g.IntN(len(places)-1)
		return []Watch{
			{Resources: resources, Namespaces: places[:at], Team: team},
			{Resources: some(g, resources), Namespaces: places[at:], Team: pick(g, "red", "")},
		}
	}
}

func (g *generator) sink(name string) Sink {
	s := Sink{Name: name, Kind: pick(g, Stream, Stream, Stream, Latest, Bucket), ShortWindow: g.chance(50)}
	if g.o.Kafka && g.chance(60) {
		s.Kind = pick(g, Topic, Topic, CompactedTopic)
	}
	s.Payload = pick(g, "", "", "change", "metadata")
	if s.Kind == Bucket || s.Kind == Latest || s.Kind == CompactedTopic {
		s.Payload = ""
	}
	s.Limit = s.Kind == Stream && g.chance(25)
	g.buffer(&s)
	g.control(&s)
	s.Filter = g.filter()
	return s
}

func (g *generator) buffer(s *Sink) {
	s.Overflow, s.Events, s.Small = pick(g, "", "", "", "block", "compact", "drop-oldest"), 0, g.chance(40)
	if g.chance(50) {
		s.Events = pick(g, 10, 50, 200, 1000)
	}
	s.Small = s.Small || s.Overflow != "" // or it would hardly ever apply
	s.possible()
}

func (g *generator) control(s *Sink) {
	s.Control, s.Progress = pick(g, "", "", Apart), g.chance(50)
	s.possible()
}

// possible takes back what can't be configured, or not judged.
func (s *Sink) possible() {
	switch {
	case s.Kind != Stream && s.Kind != Topic && s.Overflow == "drop-oldest":
		s.Overflow = "" // last states may be missing
	case s.Payload == "change" && s.Overflow == "compact": // is refused
		s.Overflow = ""
	}
}

func (g *generator) filter() (f Filter) {
	if g.chance(40) {
		f.Namespaces = some(g, namespaces())
	}
	if g.chance(30) {
		f.Namespaces, f.Zone = nil, pick(g, zones()...)
	}
	if g.chance(25) {
		f.Debounce = pick(g, 500*time.Millisecond, 2*time.Second)
	}
	if g.chance(25) {
		f.Resources = some(g, Resources())
	}
	if g.chance(35) {
		f.Team = pick(g, "red", "blue")
	}
	return f
}

func (g *generator) write(count int) {
	g.add(
		Step{
			Action: Write,
			Seed:   g.Uint64() >> 1,
			Count:  count,
			Pause:  time.Duration(pick(g, 2, 5, 10, 25)) * time.Millisecond,
		},
	)
}

// pause is up to so many milliseconds.
func (g *generator) pause(most int) {
	g.add(Step{Action: Pause, Pause: time.Duration(1+g.IntN(most)) * time.Millisecond})
}

func (g *generator) anySink() string { return pick(g, g.config.Sinks...).Dest() }

func (g *generator) end() Step { return Step{Action: pick(g, Kill, Term, Term)} }

// outage: a destination is away, now and then for longer than an event may wait in memory.
func (g *generator) outage() {
	sink := g.anySink()
	g.add(Step{Action: pick(g, Away, Hang), Sink: sink})
	g.write(50 + g.IntN(250))
	g.pause(3000)
	if g.chance(15) {
		g.add(Step{Action: Pause, Pause: 12 * time.Second})
	}
	if g.chance(80) { // otherwise it comes back at the end
		g.add(Step{Action: Back, Sink: sink})
	}
}

// outageAndRestart: while destinations are away the bridge is restarted, and may find that the API server has
// forgotten.
func (g *generator) outageAndRestart() {
	for range 1 + g.IntN(2) {
		g.add(Step{Action: pick(g, Away, Hang), Sink: g.anySink()})
	}
	g.write(50 + g.IntN(250))
	g.pause(3000)
	if g.chance(15) { // longer than a commit of the checkpoint takes, and less than what waits goes to disk after
		g.add(Step{Action: Pause, Pause: 7 * time.Second})
	}
	g.add(g.end())
	g.whileDown()
	g.add(Step{Action: Start})
	g.pause(2000)
	for _, s := range g.config.Sinks {
		if g.chance(50) {
			g.add(Step{Action: Back, Sink: s.Dest()})
			g.pause(300)
		}
	}
}

// whileDown is what happens while the bridge does not run.
func (g *generator) whileDown() {
	if g.chance(70) {
		g.write(20 + g.IntN(100))
		g.pause(1000)
	}
	if g.chance(50) {
		g.forget()
	}
}

func (g *generator) forget() {
	g.add(Step{Action: pick(g, Forget, Forget, Forget, Forget, Forget, Forget, RestartAPI)})
}

func (g *generator) lostHistory() {
	g.add(g.end())
	g.write(20 + g.IntN(150))
	g.pause(1000)
	g.forget()
	g.add(Step{Action: Start})
	g.pause(1500)
}

func (g *generator) loseCheckpoint() {
	g.add(g.end())
	if g.chance(50) {
		g.write(20 + g.IntN(100))
		g.pause(1000)
	}
	g.add(Step{Action: Lose}, Step{Action: Start})
	g.pause(1500)
}

func (g *generator) restarts() {
	for range 1 + g.IntN(4) {
		g.add(g.end())
		g.pause(300)
		g.add(Step{Action: Start})
		g.pause(1500)
	}
}

// lateBytes: what a process has sent arrives when the next one has sent the same again. A stream that keeps everything
// would store it twice.
func (g *generator) lateBytes() {
	sinks := slices.DeleteFunc(slices.Clone(g.config.Sinks), func(s Sink) bool { return s.Kind == Stream })
	if len(sinks) == 0 {
		return
	}
	sink := pick(g, sinks...).Dest()
	g.write(50 + g.IntN(250))
	g.pause(500)
	g.add(Step{Action: Late, Sink: sink})
	g.pause(1000)
	g.add(g.end(), Step{Action: Start})
	g.pause(3000)
	g.add(Step{Action: Back, Sink: sink})
}

func (g *generator) apiServer() {
	switch g.IntN(5) {
	case 0:
		g.add(Step{Action: RestartAPI})
	default:
		g.add(Step{Action: HangAPI})
		g.write(20 + g.IntN(100))
		g.pause(2000)
		if g.chance(40) {
			g.add(Step{Action: Forget})
		}
		if g.chance(30) {
			g.add(g.end(), Step{Action: Start})
		}
		g.add(Step{Action: BackAPI})
	}
	g.pause(1000)
}

func (g *generator) fullDisk() {
	if g.chance(60) {
		g.add(Step{Action: pick(g, Away, Hang), Sink: g.anySink()})
	}
	g.add(Step{Action: FillDisk})
	g.write(100 + g.IntN(200))
	g.pause(3000)
	if g.chance(40) {
		g.add(g.end())
		if g.chance(50) {
			g.add(Step{Action: FreeDisk})
		}
		g.add(Step{Action: Start})
		g.pause(1500)
	}
	g.add(Step{Action: FreeDisk})
}

func (g *generator) resync() {
	g.add(Step{Action: Resync, Sink: g.anySink()})
	g.pause(500)
	if g.chance(30) {
		g.add(g.end(), Step{Action: Start})
	}
}

// pauseSink: a sink is paused, now and then over a restart.
func (g *generator) pauseSink() {
	sink := g.anySink()
	g.add(Step{Action: PauseSink, Sink: sink})
	g.write(50 + g.IntN(250))
	g.pause(3000)
	if g.chance(40) {
		g.add(g.end())
		if g.chance(30) {
			g.change()
		}
		g.whileDown()
		g.add(Step{Action: Start})
		g.pause(1500)
	}
	if g.chance(80) { // otherwise it is resumed at the end
		g.add(Step{Action: ResumeSink, Sink: sink})
	}
}
