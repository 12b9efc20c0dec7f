package fifo

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/test/scale"
)

// filled makes a file with the items 1 to n, in blocks of a few items.
func filled(t *testing.T, path string, n int) {
	t.Helper()
	s := openSpill(t, path, func(o *SpillOptions[item]) { o.MaxItems = 12 }).start()
	for id := 1; id <= n; id++ {
		if err := s.Push(t.Context(), item{ID: id, Size: 1, Hist: fmt.Sprintf("<<item %d>>%s", id, strings.Repeat(".", 1000))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
}

// readAll takes and acknowledges everything and gives the ids, which must ascend.
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

func TestSpillDamagedItem(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		filled(t, path, 100)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []int{1, 50, 51, 100} {
			i := bytes.LastIndex(data, fmt.Appendf(nil, `item %d\u003e`, id)) // as JSON has it
			if i < 0 {
				t.Fatal("the item is not in the file")
			}
			for at := i; at >= 0; at = bytes.LastIndex(data[:at], fmt.Appendf(nil, `item %d\u003e`, id)) {
				data[at] = 'I'
			}
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := openSpill(t, path, nil).start()
		ids := s.readAll()
		if len(ids) != 96 || s.lostItems() != 4 || s.Stats().Dropped != 4 {
			t.Errorf("%d items, %d lost, %+v", len(ids), s.lostItems(), s.Stats())
		}
		passTime(time.Second)
		if s.isSpilling() || s.Stats().Items != 0 {
			t.Errorf("%+v: not all of the file was done with", s.Stats())
		}
		if !strings.Contains(s.logged(), "could not be read back") {
			t.Errorf("log: %s", s.logged())
		}
	})
}

// What OnCorrupt gives is delivered in the place of what is lost, before what follows it. Until all of it is acknowledged the
// next process is given it again.
func TestSpillReplacesWhatIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		filled(t, path, 30)
		open := func() *spillTest {
			return openSpill(t, path, func(o *SpillOptions[item]) {
				decode := o.Decode
				o.Decode = func(data []byte) (item, error) {
					v, err := decode(data)
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
		s := openSpill(t, path, func(o *SpillOptions[item]) {
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

// An item that Decode refuses is lost like one that is damaged.
func TestSpillDecodeFails(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		filled(t, path, 30)
		s := openSpill(t, path, func(o *SpillOptions[item]) {
			decode := o.Decode
			o.Decode = func(data []byte) (item, error) {
				v, err := decode(data)
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

// changeStore changes the file's buckets.
func changeStore(t *testing.T, path string, change func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err == nil {
		err = errors.Join(db.Update(change), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSpillDamagedBlocks(t *testing.T) {
	for name, tc := range map[string]func(b *bbolt.Bucket, k, v []byte) error{
		"missing": func(b *bbolt.Bucket, k, _ []byte) error { return b.Delete(k) },
		"head": func(b *bbolt.Bucket, k, v []byte) error {
			v = bytes.Clone(v)
			v[7]++
			return b.Put(k, v)
		},
		"length": func(b *bbolt.Bucket, k, v []byte) error {
			v = bytes.Clone(v)
			binary.BigEndian.PutUint32(v[blockHead:], 1<<31-1)
			binary.BigEndian.PutUint32(v, checksum(v[4:blockHead+blockEntry*int(binary.BigEndian.Uint32(v[4:]))]))
			return b.Put(k, v)
		},
		"empty": func(b *bbolt.Bucket, k, _ []byte) error { return b.Put(k, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, path string) {
				filled(t, path, 100)
				lost := 0
				changeStore(t, path, func(tx *bbolt.Tx) error {
					b := tx.Bucket([]byte(bucketBlocks))
					var keys [][]byte
					for k, _ := b.Cursor().First(); k != nil; k, _ = b.Cursor().Seek(append(k, 0)) {
						keys = append(keys, bytes.Clone(k))
					}
					if len(keys) < 5 {
						t.Fatalf("only %d blocks", len(keys))
					}
					for _, k := range [][]byte{keys[0], keys[2], keys[3], keys[len(keys)-1]} {
						lost += int(binary.BigEndian.Uint64(k[8:]) - binary.BigEndian.Uint64(k) + 1)
						if err := tc(b, k, b.Get(k)); err != nil {
							return err
						}
					}
					return nil
				})
				s := openSpill(t, path, nil).start()
				if ids := s.readAll(); len(ids) != 100-lost || s.lostItems() != lost {
					t.Errorf("%d items, %d lost, want %d", len(ids), s.lostItems(), lost)
				}
			})
		})
	}
}

func TestSpillDamagedMark(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil).start()
		s.push(1, 30)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		changeStore(t, path, func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(bucketMarks))
			v := bytes.Clone(b.Get([]byte("source1")))
			v[len(v)-1] ^= 1
			return b.Put([]byte("source1"), v)
		})
		s2 := openSpill(t, path, nil)
		if p := s2.Positions(); p["source1"] != "" || p["source0"] != "30" || !strings.Contains(s2.logged(), "Positions") {
			t.Errorf("positions %v, log %s", p, s2.logged())
		}
		if err := s2.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// Files that are not used at all: they stay beside an empty new one.
func TestSpillSetAside(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string, data []byte) []byte{
		"text":   func(*testing.T, string, []byte) []byte { return []byte("hello") },
		"zeros":  func(*testing.T, string, []byte) []byte { return make([]byte, 1<<20) },
		"cut":    func(_ *testing.T, _ string, data []byte) []byte { return data[:len(data)/4] },
		"cut 1p": func(_ *testing.T, _ string, data []byte) []byte { return data[:4096] },
		"cut 2p": func(_ *testing.T, _ string, data []byte) []byte { return data[:8192] },
		"pages": func(_ *testing.T, _ string, data []byte) []byte {
			clear(data[8192:])
			return data
		},
		"foreign": func(t *testing.T, path string, _ []byte) []byte {
			other := path + "2"
			changeStore(t, other, func(tx *bbolt.Tx) error {
				_, err := tx.CreateBucket([]byte("checkpoint"))
				return err
			})
			data, err := os.ReadFile(other)
			if err != nil {
				t.Fatal(err)
			}
			return data
		},
		"newer format": func(t *testing.T, path string, _ []byte) []byte {
			changeStore(t, path, func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte(bucketState)).Put([]byte(keyFormat), []byte("2"))
			})
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return data
		},
		"numbers": func(t *testing.T, path string, _ []byte) []byte {
			changeStore(t, path, func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte(bucketState)).Put([]byte(keyNumbers), []byte("2"))
			})
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, path string) {
				filled(t, path, 50)
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				spoiled := spoil(t, path, data)
				if err := os.WriteFile(path, spoiled, 0o600); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the second file of the same second gets another name
					s := openSpill(t, path, nil).start()
					if s.lostItems() != -1 || s.Stats().Items != 0 || len(s.Positions()) != 0 {
						t.Errorf("%d lost, %+v", s.lostItems(), s.Stats())
					}
					s.push(1, 20)
					if err := s.end(); err != nil {
						t.Fatal(err)
					}
					s = openSpill(t, path, nil)
					if s.Stats().Items != 20 {
						t.Errorf("%+v in the new file", s.Stats())
					}
					if err := s.end(); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, spoiled, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				names := setAside(t, path)
				if len(names) != 2 {
					t.Fatalf("set aside: %v", names)
				}
				for _, name := range names {
					if kept, err := os.ReadFile(name); err != nil || !bytes.Equal(kept, spoiled) {
						t.Errorf("%s is not what was there: %v", name, err)
					}
				}
			})
		})
	}
}

// Random damage at rest: whatever it is, what is read is in order and right, and the queue goes on.
func TestSpillRandomDamage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	whole, aside, partly := 0, 0, 0
	for range scale.Of(20, 60) {
		bubble(t, func(t *testing.T, path string) {
			filled(t, path, 60)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for range 1 + rnd.IntN(3) {
				at := rnd.IntN(len(data))
				for i := range min(1+rnd.IntN(500), len(data)-at) {
					data[at+i] = byte(rnd.IntN(256))
				}
			}
			if rnd.IntN(4) == 0 {
				data = data[:rnd.IntN(len(data))]
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
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
				// In a damaged tree, what is written later may be lost as well; but it is told.
				if !got[id] && s.lostItems() <= 0 {
					t.Fatalf("item %d is lost, which was pushed after the damage; %d told as lost\n%s", id, s.lostItems(), s.logged())
				}
			}
			switch {
			case s.lostItems() < 0 && waiting == 0:
				aside++
			case s.lostItems() == 0 && len(got) == waiting+30: // with the newest meta page damaged, the last commit is undone
				whole++
			case s.lostItems() > 0 && len(got)+s.lostItems() == waiting+30:
				partly++
			default:
				t.Fatalf("%d items were read, %d are told as lost, %d waited at first\n%s", len(got), s.lostItems(), waiting, s.logged())
			}
			if err := s.end(); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Logf("of 60 files %d were whole, %d lost some items, %d were set aside", whole, partly, aside)
	if whole == 0 || partly == 0 || aside == 0 {
		t.Error("not all kinds of damage were met")
	}
}

// Damage to the store's structure while the queue runs: the file is set aside, and what can be read of it goes on in a new one.
func TestSpillRewritesDamagedFile(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		filled(t, path, 100)
		var leaves []int // pages that begin those with blocks
		changeStore(t, path, func(tx *bbolt.Tx) error {
			for id := 0; ; id++ {
				switch p, err := tx.Page(id); {
				case err != nil || p == nil:
					return err
				case p.Type == "leaf" && p.OverflowCount > 0:
					leaves = append(leaves, id)
				}
			}
		})
		if len(leaves) < 5 {
			t.Fatalf("leaves: %v", leaves)
		}
		s := openSpill(t, path, nil).start()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, id := range []int{leaves[1], leaves[len(leaves)-1]} {
			if _, err := f.WriteAt(make([]byte, 16), int64(id)*int64(os.Getpagesize())); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan bool)
		go func() {
			for id := 101; id <= 200; id++ {
				if err := s.Push(t.Context(), item{ID: id, Size: 1, Hist: fmt.Sprintf("<<item %d>>..", id)}); err != nil {
					t.Error(err)
				}
			}
			close(done)
		}()
		<-done
		passTime(time.Minute)
		ids := s.readAll()
		passTime(time.Second) // what was read is deleted, which meets the damage if nothing else did
		if len(ids)+s.lostItems() != 200 || s.lostItems() == 0 || s.lostItems() > 60 || len(setAside(t, path)) != 1 {
			t.Errorf("%d items, %d lost, set aside %v\n%s", len(ids), s.lostItems(), setAside(t, path), s.logged())
		}
		if _, _, _, _, lastErr := s.SpillStats(); lastErr != "" {
			t.Error(lastErr)
		}
	})
}

// The file is removed while the queue runs and has it closed for a moment.
func TestSpillFileGone(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		filled(t, path, 40)
		s := openSpill(t, path, nil).start()
		s.store.forget()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Take(ctx, nil, 1, 1); err == nil {
			t.Fatal("took something")
		}
		if _, _, _, errs, lastErr := s.SpillStats(); s.lostItems() != 40 || errs == 0 || lastErr != "" || s.isSpilling() {
			t.Errorf("%d lost, %d errors, %q\n%s", s.lostItems(), errs, lastErr, s.logged())
		}
		for id := 41; id <= 60; id++ {
			if err := s.Push(t.Context(), item{ID: id, Size: 1, Hist: fmt.Sprintf("<<item %d>>..", id)}); err != nil {
				t.Fatal(err)
			}
		}
		if ids := s.readAll(); len(ids) != 20 || s.lostItems() != 40 {
			t.Errorf("%d items, %d lost\n%s", len(ids), s.lostItems(), s.logged())
		}
	})
}
