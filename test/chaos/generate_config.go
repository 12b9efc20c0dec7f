package chaos

import (
	"fmt"
	"slices"
	"time"
)

// labelSlack is how long it can take until the bridge has seen the new label of a namespace.
const labelSlack = 1500 * time.Millisecond

// change draws one change of the configuration.
func (g *generator) change() {
	c := g.config.Clone()
	s := &c.Sinks[g.IntN(len(c.Sinks))]
	switch g.IntN(13) {
	case 0, 1, 2:
		s.Filter = g.filter()
	case 3:
		g.buffer(s)
	case 4, 5:
		c.Watch = g.watch()
	case 6:
		if s.Kind == Stream || s.Kind == Topic {
			s.Payload = pick(g, "", "change", "metadata")
			s.possible()
		}
	case 7, 8:
		switch {
		case len(g.gone) > 0: // one that was removed is back, unless another change has brought it back
			if c.At(g.gone[0].Dest()) == nil {
				c.Sinks = append(c.Sinks, g.gone[0])
			}
			g.gone = g.gone[1:]
		case len(c.Sinks) < 4:
			c.Sinks = append(c.Sinks, g.sink(fmt.Sprintf("n%d", len(g.steps))))
		}
	case 9:
		if len(c.Sinks) > 1 {
			g.gone = append(g.gone, c.Sinks[0])
			c.Sinks = slices.Delete(c.Sinks, 0, 1)
		}
	case 10:
		s.Place = fmt.Sprintf("p%d", len(g.steps))
	case 11:
		g.control(s)
	case 12:
		s.Name, s.Place = fmt.Sprintf("r%d", len(g.steps)), s.Dest()
	}
	g.config = c
	g.add(Step{Action: Configure, Config: new(c.Clone())})
}

func (g *generator) reconfigure() {
	if g.chance(30) {
		g.add(Step{Action: pick(g, Away, Hang), Sink: g.anySink()})
		g.pause(1000)
	}
	g.add(g.end())
	g.change()
	if g.chance(40) {
		g.whileDown()
	}
	g.add(Step{Action: Start})
	g.pause(1500)
}

// relabel: the label of a namespace changes, and the bridge is perhaps restarted before it has sent what that means.
func (g *generator) relabel() {
	g.config = g.config.Clone()
	n := pick(g, namespaces()...)
	zone := map[string]string{"east": "west", "west": "east"}[g.config.Zones[n]]
	g.config.Zones[n] = zone
	g.add(Step{Action: Settle})
	if g.chance(50) {
		g.add(Step{Action: Label, Namespace: n, Zone: zone, Pause: labelSlack})
		return
	}
	g.add(Step{Action: Label, Namespace: n, Zone: zone, Pause: time.Duration(1+g.IntN(300)) * time.Millisecond},
		g.end(), Step{Action: Start})
	g.pause(1500)
}

// reload: the configuration changes while the bridge runs, once or several times in a row, also while a destination is
// away.
func (g *generator) reload() {
	sink := ""
	if g.chance(30) {
		sink = g.anySink()
		g.add(Step{Action: pick(g, Away, Hang), Sink: sink})
		g.pause(1000)
	}
	for range 1 + g.IntN(3) {
		g.change()
		g.add(Step{Action: Reload})
		g.pause(1500)
	}
	if sink != "" && g.chance(80) {
		g.add(Step{Action: Back, Sink: sink})
	}
}

// reconfigureTwice restarts the bridge before it is done with what a changed configuration means, or changes it back.
func (g *generator) reconfigureTwice() {
	before := g.config.Clone()
	g.reconfigure()
	g.add(g.end())
	switch g.IntN(3) {
	case 0:
		g.config = before
		g.add(Step{Action: Configure, Config: new(before.Clone())})
	case 1:
		g.change()
	}
	g.add(Step{Action: Start})
	g.pause(1500)
}

// flap: short faults of destinations.
func (g *generator) flap() {
	for range 1 + g.IntN(4) {
		sink := g.anySink()
		g.add(Step{Action: pick(g, Cut, Away, Hang), Sink: sink})
		g.pause(300)
		g.add(Step{Action: Back, Sink: sink})
		g.pause(200)
	}
}
