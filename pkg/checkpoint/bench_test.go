package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// pods are n of the rows of a source.
func pods(b testing.TB, first, n, version int) []*object.Object {
	objects := make([]*object.Object, n)
	for i := range objects {
		objects[i] = pod(b, first+i, version)
	}
	return objects
}

// filled is a store with the 20,000 pods of one source, which waits for the disk.
func filled(b *testing.B) *Store {
	b.Helper()
	folder := b.TempDir()
	s := begin(b, folder)
	if err := s.Commit(
		[]ledger.Update{
			{State: ledger.State{Source: testSource("pods"), ResourceVersion: "1"}, Upserts: pods(b, 0, 20_000, 1)},
		},
		nil, nil,
	); err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	s, err := Open(Options{Path: folder, ClusterName: "test"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// BenchmarkCommit replaces rows that are spread over 20,000.
func BenchmarkCommit(b *testing.B) {
	for _, rows := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			s := filled(b)
			var updates [2][]*object.Object // in turn, so that each row changes
			for v := range updates {
				for i := range rows {
					updates[v] = append(updates[v], pod(b, i*(20_000/rows), v+2))
				}
			}
			n := 0
			for b.Loop() {
				n++
				if err := s.Commit(
					[]ledger.Update{{State: ledger.State{Source: testSource("pods"), ResourceVersion: "2"}, Upserts: updates[n%2]}},
					nil, nil,
				); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n*rows), "us/row")
			b.ReportMetric(float64(s.Stats().SizeBytes)/1e6, "MB")
		})
	}
}

// BenchmarkFirst commits 20,000 rows to an empty store.
func BenchmarkFirst(b *testing.B) {
	objects := pods(b, 0, 20_000, 1)
	for b.Loop() {
		b.StopTimer()
		s, err := Open(Options{Path: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.BeginCluster(testUID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := s.Commit(
			[]ledger.Update{{State: ledger.State{Source: testSource("pods"), ResourceVersion: "1"}, Upserts: objects}},
			nil, nil,
		); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64(s.Stats().SizeBytes)/1e6, "MB")
		s.Close()
		b.StartTimer()
	}
}

func BenchmarkLoad(b *testing.B) {
	s := filled(b)
	for b.Loop() {
		if _, rows, err := s.Load("pods"); err != nil || len(rows) != 20_000 {
			b.Fatal(len(rows), err)
		}
	}
}

// BenchmarkOpen opens the file of 20,000 rows, which is in the page cache.
func BenchmarkOpen(b *testing.B) {
	s := filled(b)
	s.Close()
	info, err := os.Stat(filepath.Join(s.opts.Path, fileName))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := Open(s.opts)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
	b.SetBytes(info.Size())
}
