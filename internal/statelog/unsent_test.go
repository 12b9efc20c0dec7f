package statelog_test

import (
	"context"
	"maps"
	"testing"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
)

// A copy goes on without the log. Its process skips its own commits and claims, even those that it did not note. When
// another process has claimed the log, the copy is replaced with what the log has.
func TestUnsent(t *testing.T) {
	b := logtest.NewBroker(true)
	c := &logtest.Copy{}
	row := func(value string) []statelog.Pair {
		return []statelog.Pair{{Bucket: "rows", Source: "pods", Key: "a", Value: []byte(value)}}
	}
	w := statelog.NewWriter(b.Open(), c, statelog.Claim{Holder: "one"})
	change := func(w *statelog.Writer, c *logtest.Copy, value string) {
		t.Helper()
		at, err := w.Append(t.Context(), row(value))
		if err == nil {
			err = c.Apply(row(value), at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	claim := func(w *statelog.Writer) {
		t.Helper()
		if err := w.Claim(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	claim(w)
	change(w, c, "1")
	other := c.Clone()
	if _, err := w.Append(t.Context(), row("2")); err != nil { // the copy does not note it
		t.Fatal(err)
	}
	at := c.Point()
	at.Unsent = "outage"
	if err := c.Apply(row("3"), at); err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(c.Content())
	kept := func() {
		t.Helper()
		if !maps.Equal(c.Content(), want) || c.Point().Unsent != "outage" {
			t.Fatalf("%v at %+v", c.Content(), c.Point())
		}
	}
	uncertain := b.Open()
	short, cancel := context.WithCancel(t.Context())
	defer cancel()
	uncertain.SetFault(func() logtest.Fault { cancel(); return logtest.Written })
	if err := statelog.NewWriter(uncertain, c, statelog.Claim{Holder: "one"}).Claim(short, false); err == nil {
		t.Fatal("the result of the claim is known")
	}
	kept()
	w = statelog.NewWriter(b.Open(), c, statelog.Claim{Holder: "one again"})
	claim(w)
	kept()

	w = statelog.NewWriter(b.Open(), other, statelog.Claim{Holder: "other"})
	claim(w)
	change(w, other, "4")
	if err := statelog.NewFollower(b.Open(), c, statelog.Claim{}).Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(c.Content(), other.Content()) || c.Point().Unsent != "" {
		t.Errorf("%v at %+v", c.Content(), c.Point())
	}
}
