package checkpoint

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/internal/statelog"
)

// A file is compacted only if its size is at least sparseSize and at most compactSize of it is in use. Compacting
// copies more than 50 MB/s, so it delays a start by less than about 10 s.
const sparseSize, compactSize = 8 << 20, 512 << 20

// isSparse reports whether a file should be compacted. bbolt itself never shrinks a file.
func isSparse(u boltfile.Usage) bool {
	return u.Total >= sparseSize && u.Used < u.Total/2 && u.Used <= compactSize
}

// openFile opens an existing file. If it is damaged or not a checkpoint, the error wraps boltfile.ErrDamaged.
func openFile(path string, o boltfile.Options) (file *boltfile.File, record storeRecord, err error) {
	if file, err = boltfile.Open(path, o); err == nil {
		if err = file.View(func(tx *bbolt.Tx) (err error) { record, err = readHeader(tx); return err }); err != nil {
			_ = file.Close()
		}
	}
	return file, record, err
}

// readHeader returns the store record of the file. It returns an error if the file is not a checkpoint.
func readHeader(tx *bbolt.Tx) (storeRecord, error) {
	for _, name := range []string{bucketStore, bucketSources, bucketRows} {
		if tx.Bucket([]byte(name)) == nil {
			return storeRecord{}, fmt.Errorf("%w: a bucket is missing", boltfile.ErrDamaged)
		}
	}
	return getRecord(tx)
}

func (s *Store) fileOptions() boltfile.Options { return boltfile.Options{NoSync: s.opts.NoSync} }

// begin opens the file. If the file is missing or unusable, begin replaces it with an empty one.
func (s *Store) begin() error {
	file, record, err := openFile(s.path, s.fileOptions())
	if errors.Is(err, boltfile.ErrDamaged) {
		return s.quarantine("corrupt", "", err)
	}
	if errors.Is(err, os.ErrNotExist) {
		return s.replace(s.emptyRecord(""), nil, s.install)
	}
	if err != nil {
		return err
	}
	s.use(file, record)
	if err := s.compactIfSparse(); err != nil {
		return errors.Join(err, s.file.Close())
	}
	if record.ClusterName != s.opts.ClusterName {
		s.logger.Warn("the checkpoint has another name of the cluster; it is used if the cluster's uid is the same",
			"was", record.ClusterName, "is", s.opts.ClusterName, "path", s.path)
	}
	return nil
}

// newInstallation returns a random name of 40 bits.
func newInstallation() string { return strings.ToLower(rand.Text()[:8]) }

// sweep removes unusable sources: sources whose initial list was not completed, and sources whose record is damaged or
// that the store record does not contain.
func (s *Store) sweep() error {
	states, err := s.States()
	if err != nil {
		return err
	}
	usable := map[string]bool{}
	for _, state := range states {
		usable[state.Source.Name] = true
	}
	names := slices.Clone(s.record.Sources)
	err = s.view(func(tx *bbolt.Tx) error {
		add := func(name, _ []byte) error { names = append(names, string(name)); return nil }
		return errors.Join(tx.Bucket([]byte(bucketSources)).ForEach(add), tx.Bucket([]byte(bucketRows)).ForEach(add))
	})
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if usable[name] {
			continue
		}
		s.logger.Warn("removing a source from the checkpoint: its initial list was not completed, or its record is damaged",
			"source", name, "path", s.path)
		if err := s.write(func(t *transaction) error { return t.forget(name) }); err != nil {
			return err
		}
	}
	return nil
}

// emptyRecord returns the store record of a checkpoint without rows.
func (s *Store) emptyRecord(clusterUID string) storeRecord {
	r := storeRecord{ClusterName: s.opts.ClusterName, ClusterUID: clusterUID, Privacy: s.opts.Privacy.Name}
	if s.opts.Log == nil || clusterUID != "" { // otherwise, the log may know the name
		r.Installation = newInstallation()
	}
	return r
}

// replace replaces the file with a checkpoint without rows. The old file is removed, unless install renames it first.
// The removal of everything that the old file contained is passed to log.
func (s *Store) replace(record storeRecord, log Log, install func(storeRecord) error) error {
	t := s.transaction(log)
	sources := t.record.Sources
	var events []string
	if log != nil {
		if err := s.view(func(tx *bbolt.Tx) error { events = eventLogs(tx); return nil }); err != nil {
			return err
		}
	}
	t.record = record
	err := boltfile.Prepare(s.path, s.fileOptions(), func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
			t.Tx = tx
			return t.fill(sources, events)
		})
	})
	if err != nil {
		return err
	}
	return install(t.record)
}

// fill writes the buckets and records of a checkpoint without rows into an empty bbolt file. sources and events are the
// names of the sources and of the logs of events in the old file; fill logs their removal.
func (t *transaction) fill(sources, events []string) error {
	for _, name := range []string{bucketStore, bucketSources, bucketRows} {
		if _, err := t.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	for _, name := range sources {
		if err := t.forget(name); err != nil {
			return err
		}
	}
	for _, name := range events {
		if err := t.set(statelog.Pair{Bucket: bucketEvents, Source: name}); err != nil {
			return err
		}
	}
	if err := t.putJSON(bucketStore, keyStore, t.record); err != nil {
		return err
	}
	return t.finish()
}

// quarantine renames the file and starts an empty one. It creates the empty file first, so it does not rename the file
// if the disk is full.
func (s *Store) quarantine(reason, clusterUID string, why error) error {
	log := s.opts.Log
	if log != nil && (s.file == nil || s.record.Point.Number == 0) {
		log, clusterUID = nil, "" // the log has not been read yet; its content will replace that of the new file
	}
	return s.replace(s.emptyRecord(clusterUID), log, func(record storeRecord) error {
		renamedTo, err := files.Quarantine(s.path, reason)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.stats.Quarantined++
		s.mu.Unlock()
		s.logger.Warn("checkpoint quarantined; starting with an empty one, so everything is listed",
			"reason", reason, "err", why, "renamedTo", renamedTo,
			"remedy", "delete the renamed file when you no longer need it; the bridge does not read it again")
		return s.install(record)
	})
}

// install replaces the file in use with the prepared file.
func (s *Store) install(record storeRecord) error {
	file, err := boltfile.Install(s.path, s.fileOptions())
	if err == nil {
		s.use(file, record)
	}
	return err
}

// compactIfSparse compacts the file if it is sparse. If it cannot be copied, it stays in use.
func (s *Store) compactIfSparse() error {
	usage := s.file.Usage()
	if !isSparse(usage) {
		return nil
	}
	if err := s.prepareCopy(); err != nil {
		s.logger.Warn("cannot compact the checkpoint, keeping it as it is", "path", s.path, "err", err)
		return nil
	}
	s.logger.Info("checkpoint compacted", "path", s.path, "bytesBefore", usage.Total, "bytesUsed", usage.Used)
	return s.install(s.record)
}

// prepareCopy creates a file with the content of the current file, but without its free pages.
func (s *Store) prepareCopy() error {
	return boltfile.Prepare(s.path, s.fileOptions(), func(to *bbolt.DB) error { return s.file.Copy(to, moveBytes) })
}
