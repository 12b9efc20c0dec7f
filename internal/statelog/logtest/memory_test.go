package logtest

import (
	"errors"
	"testing"

	"github.com/deltabridge/deltabridge/internal/statelog"
)

func TestConformance(t *testing.T) {
	for name, producers := range map[string]bool{"expected positions": false, "producers": true} {
		t.Run(name, func(t *testing.T) {
			Run(t, Harness{
				New: func(*testing.T) func(*testing.T) statelog.Log {
					b := NewBroker(producers)
					return func(*testing.T) statelog.Log { return b.Open() }
				},
				TooLarge: 1<<20 + 1,
			})
		})
	}
}

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		fault              Fault
		once, atOnce, late int // records after: the repeated Append, the first one, and one that arrives late
	}{
		{NotWritten, 1, 0, 0},
		{Written, 1, 1, 1},
		{Late, 1, 0, 1},
	} {
		count := func(b *Broker) (n int) {
			_, err := b.Open().Read(t.Context(), 0, func(int64, []byte) error { n++; return nil })
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		for _, repeat := range []bool{false, true} {
			b := NewBroker(false)
			m := b.Open()
			m.SetFault(func() Fault { return test.fault })
			if _, err := m.Append(t.Context(), 0, []byte("r")); !errors.Is(err, ErrUncertain) {
				t.Fatalf("fault %d: %v", test.fault, err)
			}
			if n := count(b); n != test.atOnce {
				t.Errorf("fault %d: %d records at once", test.fault, n)
			}
			want := test.late
			if repeat {
				want = test.once
				m.SetFault(nil)
				if _, err := m.Append(t.Context(), 0, []byte("r")); err != nil {
					t.Fatalf("fault %d, repeated: %v", test.fault, err)
				}
			}
			if b.Arrive(); count(b) != want {
				t.Errorf("fault %d, repeated %v: %d records, want %d", test.fault, repeat, count(b), want)
			}
		}
	}
}
