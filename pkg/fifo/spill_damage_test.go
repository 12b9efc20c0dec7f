package fifo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/scale"
)

// filled writes the items 1 to n, in files of about ten items.
func filled(t *testing.T, path string, n int) {
	t.Helper()
	s := openSpill(t, path, func(o *Options[item]) { o.MaxItems, o.MaxDiskBytes = 12, 160<<10 }).start()
	for id := 1; id <= n; id++ {
		if err := s.Push(
			t.Context(),
			item{ID: id, Size: 1, Hist: fmt.Sprintf("<<item %d>>%s", id, strings.Repeat(".", 1000))},
		); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
}

// readAll takes and acknowledges all items and returns their ids, which must ascend.
func (s *spillTest) readAll() (ids []int) {
	s.t.Helper()
	for {
		before := len(ids)
		s.Close()
		batch, err := s.Take(s.t.Context(), nil, 5, 1<<30)
		if errors.Is(err, ErrClosed) {
			return ids
		}
		if err != nil {
			s.t.Fatal(err)
		}
		for _, v := range batch {
			if len(ids) > 0 && v.ID <= ids[len(ids)-1] {
				s.t.Fatalf("%d behind %d", v.ID, ids[len(ids)-1])
			}
			ids = append(ids, v.ID)
			if !strings.HasPrefix(v.Hist, fmt.Sprintf("<<item %d>>..", v.ID)) {
				s.t.Fatalf("item %d has another's content: %.20s", v.ID, v.Hist)
			}
		}
		s.Ack(len(ids) - before)
	}
}

// lostItems is what OnCorrupt was told.
func (s *spillTest) lostItems() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

func setAside(t *testing.T, path string) []string {
	t.Helper()
	names, err := filepath.Glob(path + ".damaged-*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// changeFiles changes the content of the files.
func changeFiles(t *testing.T, paths []string, change func(path string, data []byte) []byte) {
	t.Helper()
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, change(path, data), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestSpillDamagedItem(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		filled(t, path, 100)
		damaged := 0
		changeFiles(t, segmentsOf(t, path), func(_ string, data []byte) []byte {
			for _, id := range []int{1, 50, 51, 100} {
				if i := bytes.Index(data, fmt.Appendf(nil, `item %d\u003e`, id)); i >= 0 { // as JSON has it
					data[i] = 'I'
					damaged++
				}
			}
			return data
		})
		if damaged != 4 {
			t.Fatalf("%d items were found", damaged)
		}
		s := openSpill(t, path, nil).start()
		ids := s.readAll()
		if len(ids) != 96 || s.lostItems() != 4 || s.Stats().Dropped != 4 {
			t.Errorf("%d items, %d lost, %+v", len(ids), s.lostItems(), s.Stats())
		}
		passTime(time.Second)
		if s.isSpilling() || s.Stats().Items != 0 || len(setAside(t, path)) < 3 { // two items can be in one file
			t.Errorf("%+v: not all of the files were done with; renamed %v", s.Stats(), setAside(t, path))
		}
		if !strings.Contains(s.logged(), "cannot read back") {
			t.Errorf("log: %s", s.logged())
		}
	})
}

// The items that OnCorrupt returns are delivered in place of the lost items, before the items after them. Until all of
// them are acknowledged, the next process receives them again.
func TestSpillReplacesWhatIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		filled(t, path, 30)
		open := func() *spillTest {
			return openSpill(t, path, func(o *Options[item]) {
				decode := o.Decode
				o.Decode = func(data []byte, left bool) (item, error) {
					v, err := decode(data, left)
					if v.ID == 1 || v.ID == 15 || v.ID == 30 {
						err = errors.New("unknown version")
					}
					return v, err
				}
				o.OnCorrupt = func(l Loss) []item {
					if l.Err == nil || l.Items() != 1 || len(l.Positions) == 0 {
						t.Errorf("%+v", l)
					}
					return []item{{ID: -int(l.First)}, {ID: -int(l.First)}}
				}
			}).start()
		}
		s := open()
		got := s.takeIDs(1)
		if want := []int{-1}; !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		s = open()
		want := []int{-1, -1}
		for id := 2; id < 30; id++ {
			if id == 15 {
				want = append(want, -15, -15)
			} else {
				want = append(want, id)
			}
		}
		want = append(want, -30, -30)
		if got := s.takeIDs(len(want)); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		passTime(time.Second)
		if s.isSpilling() || s.Stats().Items != 0 || s.Stats().Bytes != 0 {
			t.Errorf("%+v: not all of the file was done with", s.Stats())
		}
	})
}

// Of a file that can't be read at all, the first that is delivered says so.
func TestSpillReplacesALostFile(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := openSpill(t, path, func(o *Options[item]) {
			o.OnCorrupt = func(l Loss) []item {
				if l.Err == nil || l.Items() != 0 {
					t.Errorf("%+v", l)
				}
				return []item{{ID: -1}, {ID: -2}}
			}
		}).start()
		s.push(1, 20) // more than fits into memory
		if got := s.takeIDs(22); got[0] != -1 || got[1] != -2 || got[2] != 1 {
			t.Errorf("%v", got)
		}
	})
}

// An item that Decode rejects is lost, like a damaged item.
func TestSpillDecodeFails(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		filled(t, path, 30)
		s := openSpill(t, path, func(o *Options[item]) {
			decode := o.Decode
			o.Decode = func(data []byte, left bool) (item, error) {
				v, err := decode(data, left)
				if v.ID%10 == 0 {
					err = errors.New("unknown version")
				}
				return v, err
			}
		}).start()
		if ids := s.readAll(); len(ids) != 27 || s.lostItems() != 3 {
			t.Errorf("%d items, %d lost", len(ids), s.lostItems())
		}
	})
}

func TestSpillDamagedFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(data []byte) []byte // nil: the file is removed
		lost   func(inFile int) int
	}{
		"missing": {nil, func(n int) int { return n }},
		"empty":   {func([]byte) []byte { return nil }, func(n int) int { return n }},
		"zeros":   {func(data []byte) []byte { return make([]byte, len(data)) }, func(n int) int { return n }},
		"cut":     {func(data []byte) []byte { return data[:len(data)-1] }, func(int) int { return 1 }},
		"header":  {func(data []byte) []byte { data[0]++; return data }, func(int) int { return 0 }},
		"first item": {func(data []byte) []byte {
			at := bytes.Index(data, []byte(`{"ID":`))
			clear(data[at-30 : at+10]) // its head, too
			return data
		}, func(int) int { return 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, path string) {
				filled(t, path, 100)
				files := segmentsOf(t, path)
				if len(files) < 5 {
					t.Fatalf("only %d files", len(files))
				}
				lost := 0
				for _, n := range []int{0, 2, 3, len(files) - 1} {
					changeFiles(t, files[n:n+1], func(path string, data []byte) []byte {
						lost += tc.lost(bytes.Count(data, []byte(`{"ID":`)))
						if tc.change == nil {
							return data
						}
						return tc.change(data)
					})
					if tc.change == nil {
						if err := os.Remove(files[n]); err != nil {
							t.Fatal(err)
						}
					}
				}
				s := openSpill(t, path, nil).start()
				if ids := s.readAll(); len(ids) != 100-lost || s.lostItems() != lost {
					t.Errorf("%d items, %d lost, want %d\n%s", len(ids), s.lostItems(), lost, s.logged())
				}
			})
		})
	}
}

// Where the positions are damaged, those that are not known from items are lost, which is logged.
func TestSpillDamagedPositions(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil).start()
		if err := s.Push(t.Context(), newItem(77, 7, 1)); err != nil {
			t.Fatal(err)
		}
		s.takeIDs(1)
		s.push(1, 30)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		changeFiles(t, segmentsOf(t, path), func(_ string, data []byte) []byte {
			return bytes.Replace(data, []byte(`"77"`), []byte(`"78"`), 1)
		})
		s2 := openSpill(t, path, nil)
		if p := s2.Positions(); p["source7"] != "" || p["source0"] != "30" || !strings.Contains(s2.logged(), "positions") {
			t.Errorf("positions %v, log %s", p, s2.logged())
		}
		if err := s2.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// What can't be used at all is renamed, and the queue begins with nothing.
func TestSpillSetAside(t *testing.T) {
	for name, spoil := range map[string]func(path, state string) error{
		"a file": func(path, _ string) error {
			return errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte("hello"), 0o600))
		},
		"text":       func(_, state string) error { return os.WriteFile(state, []byte("hello"), 0o600) },
		"zeros":      func(_, state string) error { return os.WriteFile(state, make([]byte, 8192), 0o600) },
		"no state":   func(_, state string) error { return os.Remove(state) },
		"both slots": func(_, state string) error { return os.Truncate(state, 20) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, path string) {
				for range 2 { // what is renamed in the same second gets another name
					filled(t, path, 50)
					if err := spoil(path, filepath.Join(path, "state")); err != nil {
						t.Fatal(err)
					}
					s := openSpill(t, path, nil).start()
					if s.lostItems() != -1 || s.Stats().Items != 0 || len(s.Positions()) != 0 {
						t.Errorf("%d lost, %+v", s.lostItems(), s.Stats())
					}
					s.push(1, 20)
					if err := s.end(); err != nil {
						t.Fatal(err)
					}
					s = openSpill(t, path, nil).start()
					if s.Stats().Items != 20 {
						t.Errorf("%+v in the new one", s.Stats())
					}
					s.takeIDs(20)
					if err := s.end(); err != nil {
						t.Fatal(err)
					}
				}
				names := setAside(t, path)
				if len(names) != 2 {
					t.Fatalf("renamed: %v", names)
				}
				for _, name := range names {
					kept := segmentsOf(t, name)
					if info, err := os.Stat(name); err != nil || info.IsDir() && len(kept) < 3 {
						t.Errorf("%s is not what was there: %v, %v", name, kept, err)
					}
				}
			})
		})
	}
}

// missingBefore returns how many items up to last are missing without a break.
func missingBefore(got map[int]bool, last int) (missing int) {
	for ; missing < last && !got[last-missing]; missing++ {
	}
	return missing
}

// Random damage at rest: whatever it is, what is read is in order and right, and the queue goes on.
func TestSpillRandomDamage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	whole, aside, partly := 0, 0, 0
	for range scale.Of(20, 60) {
		bubble(t, func(t *testing.T, path string) {
			filled(t, path, 60)
			files := append(segmentsOf(t, path), filepath.Join(path, "state"))
			damaged := map[int]bool{}
			for range 1 + rnd.IntN(3) {
				n := min(rnd.IntN(len(files)+2), len(files)-1) // the state, which decides over all, is met more often
				damaged[n] = true
				changeFiles(t, files[n:n+1], func(_ string, data []byte) []byte {
					at, length := rnd.IntN(len(data)), 1+rnd.IntN(500)
					if n == len(files)-1 && rnd.IntN(2) == 0 { // the state; else one of its slots is met at most
						at, length = 0, len(data)
					}
					for i := range min(length, len(data)-at) {
						data[at+i] = byte(rnd.IntN(256))
					}
					if rnd.IntN(4) == 0 {
						data = data[:1+rnd.IntN(len(data))]
					}
					return data
				})
			}
			s := openSpill(t, path, nil).start()
			waiting := s.Stats().Items
			for id := 61; id <= 90; id++ {
				go func() {
					_ = s.Push(t.Context(), item{ID: id, Size: 1, Hist: fmt.Sprintf("<<item %d>>..", id)})
				}()
			}
			passTime(time.Minute)
			got := map[int]bool{}
			for s.Stats().Items > 0 {
				passTime(time.Second)
				if s.Stats().Items == 0 {
					break
				}
				batch := take(t, s, 7, 1<<30)
				for _, v := range batch {
					if !strings.HasPrefix(v.Hist, fmt.Sprintf("<<item %d>>..", v.ID)) || got[v.ID] {
						t.Fatalf("item %d: %.20s, %v", v.ID, v.Hist, got)
					}
					got[v.ID] = true
				}
				s.Ack(len(batch))
				passTime(10 * time.Second)
			}
			for id := 61; id <= 90; id++ {
				if !got[id] {
					t.Fatalf("item %d is lost, which was pushed after the damage; %d told as lost\n%s", id, s.lostItems(), s.logged())
				}
			}
			switch {
			case s.lostItems() < 0 && waiting == 0:
				aside++
			case s.lostItems() == 0 && len(got) == 60+30:
				whole++
			case s.lostItems() > 0 && len(got)+s.lostItems() == 60+30:
				partly++
			case damaged[len(files)-1] && damaged[len(files)-2] && len(got)+max(0, s.lostItems())+missingBefore(got, 60) == 60+30:
				// An older state does not know the last items, so that their loss looks like a torn tail.
			default:
				t.Fatalf(
					"%d items were read, %d are told as lost, %d waited at first\n%s",
					len(got),
					s.lostItems(),
					waiting,
					s.logged(),
				)
			}
			if err := s.end(); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Logf("%d were whole, %d lost some items, %d were quarantined", whole, partly, aside)
	if whole == 0 || partly == 0 || aside == 0 {
		t.Error("not all kinds of damage were met")
	}
}

// If a file is damaged while the queue runs, only the damaged items are lost, and the file is renamed when it is no
// longer required.
func TestSpillDamagedInUse(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		filled(t, path, 100)
		files := segmentsOf(t, path)
		s := openSpill(t, path, nil).start()
		s.push(101, 120)
		passTime(time.Second)
		files = append(files[:2:2], segmentsOf(t, path)[len(files)]) // also the one that is written to
		for _, name := range files {
			f, err := os.OpenFile(name, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(make([]byte, 16), 500); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s.push(121, 200)
		got := 0
		for got+s.lostItems() < 200 {
			batch := take(t, s, 5, 1<<30)
			got += len(batch)
			s.Ack(len(batch))
		}
		passTime(time.Second)
		if s.lostItems() < 3 || s.lostItems() > 6 || len(setAside(t, path)) != 3 || s.isSpilling() {
			t.Errorf("%d items, %d lost, renamed %v\n%s", got, s.lostItems(), setAside(t, path), s.logged())
		}
		if lastErr := s.SpillStats().LastErr; lastErr != "" {
			t.Error(lastErr)
		}
	})
}

// The directory is removed while the queue runs.
func TestSpillFileGone(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		filled(t, path, 40)
		s := openSpill(t, path, nil).start()
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Take(ctx, nil, 1, 1); err == nil {
			t.Fatal("took something")
		}
		if lastErr := s.SpillStats().LastErr; s.lostItems() != 40 || lastErr != "" || s.isSpilling() {
			t.Errorf("%d lost, %q\n%s", s.lostItems(), lastErr, s.logged())
		}
		for id := 41; id <= 60; id++ {
			if err := s.Push(t.Context(), item{ID: id, Size: 1, Hist: fmt.Sprintf("<<item %d>>..", id)}); err != nil {
				t.Fatal(err)
			}
		}
		s.wantIDs("taken", s.takeIDs(20), 41, 60)
		passTime(time.Second)
		s.push(61, 80)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if n, err := Peek(path); n != 20 || err != nil || s.lostItems() != 40 {
			t.Errorf("Peek = %d, %v; %d lost", n, err, s.lostItems())
		}
	})
}
