package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/deltabridge/deltabridge/internal/files"
)

// The state file is overwritten in place, so that records can be acknowledged when the disk is full. It has two slots
// in different sectors. The slot that was last made durable is never overwritten. A slot has the following format, with
// big-endian numbers:
//
//	uint32 checksum of the rest
//	uint32 magic, uint32 format
//	uint32 seed
//	uint64 generation, uint64 acked, uint64 last
const (
	stateName    = "state"
	stateMagic   = 0x5345474d // "SEGM"
	slotBytes    = 40
	slotDistance = 4096
)

// StateBytes is the size of the state file.
const StateBytes = slotDistance + slotBytes

// errState is wrapped by errors about a spill that cannot be used.
var errState = errors.New("the spill cannot be used")

// state is a slot of the state file.
type state struct {
	Sum, Magic, Format, Seed uint32
	Generation               uint64 // the valid slot with the higher generation is used
	Acked                    uint64 // all records up to this number are acknowledged
	Last                     uint64 // records up to this number were written; the segments may contain newer records
}

// stateFile is the state file, which is also used to lock the directory.
type stateFile struct {
	file *os.File
	state
	slot int // index of the slot to write next
}

// openState opens and locks the state file. The error wraps errState if the file cannot be used.
func openState(path string, flags int, patience time.Duration) (s *stateFile, err error) {
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	s = &stateFile{file: file}
	if err = files.LockFile(file, patience); err == nil {
		err = s.read()
	}
	if err == nil && flags == os.O_RDWR {
		err = file.Sync() // the slot that was read may not be durable, and the other slot is overwritten next
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

// createState creates the state file with room for both slots.
func createState(path string, seed uint32, acked, last uint64) (s *stateFile, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	s = &stateFile{file: file}
	if err = files.LockFile(file, 0); err == nil {
		if err = s.read(); err == nil {
			err = errors.New("another process has just created the file")
		} else if errors.Is(err, errState) {
			err = nil // it is new, or of an earlier process that wrote no record
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s.state, s.slot = state{Seed: seed}, 0
	_, err = file.WriteAt(make([]byte, slotBytes), slotDistance)
	if err == nil {
		err = s.write(acked, last, true)
	}
	if err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

// discard empties and closes a file that createState has created. Otherwise, the next createState would take it for the
// file of another process.
func (s *stateFile) discard() error { return errors.Join(s.file.Truncate(0), s.file.Close()) }

// read reads both slots and uses the valid slot with the higher generation.
func (s *stateFile) read() error {
	found := false
	for slot := range 2 {
		var data [slotBytes]byte
		var read state
		if _, err := s.file.ReadAt(data[:], int64(slot)*slotDistance); err != nil {
			continue
		}
		_, _ = binary.Decode(data[:], binary.BigEndian, &read) // cannot fail: data has the size of state
		if read.Sum != checksum(0, data[4:]) || read.Magic != stateMagic {
			continue
		}
		if err := files.CheckFormat(filepath.Dir(s.file.Name()), int(read.Format)); err != nil {
			return err
		}
		if !found || read.Generation > s.Generation {
			s.state, s.slot, found = read, 1-slot, true
		}
	}
	if !found {
		return fmt.Errorf("%w: its state file is damaged", errState)
	}
	return nil
}

// write writes the numbers to the next slot. If sync is true and write returns nil, they are durable.
func (s *stateFile) write(acked, last uint64, sync bool) error {
	s.Generation++
	next := state{
		Magic: stateMagic, Format: files.Format, Seed: s.Seed, Generation: s.Generation, Acked: acked, Last: last,
	}
	data, err := binary.Append(make([]byte, 0, slotBytes), binary.BigEndian, next)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(data, checksum(0, data[4:]))
	if _, err := s.file.WriteAt(data, int64(s.slot)*slotDistance); err != nil || !sync {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	s.Acked, s.Last, s.slot = acked, last, 1-s.slot
	return nil
}
