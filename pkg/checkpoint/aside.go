package checkpoint

import (
	"os"
	"time"
)

// setAside gives the file a name that says why, and begins an empty one. why may be nil.
func (s *Store) setAside(reason string, why error, record storeRecord) error {
	aside := asideName(s.path, reason, time.Now())
	if err := s.replace(aside, record); err != nil {
		return err
	}
	s.count(func(stats *Stats) { stats.Refused++ })
	s.logger.Warn("checkpoint set aside; an empty one is begun, so everything is listed afresh",
		"reason", reason, "error", why, "kept", aside,
		"remedy", "delete the kept file once nobody needs to look into it: it is not read again")
	return nil
}

// replace puts an empty file in the place of the one there is, if any, which gets the name aside. If it fails,
// everything is as it was.
func (s *Store) replace(aside string, record storeRecord) error {
	fresh := s.path + suffixNew
	if err := create(fresh, record, s.opts.NoSync); err != nil {
		_ = remove(fresh) // the next Open does it otherwise
		return err
	}
	if aside != "" {
		if err := os.Rename(s.path, aside); err != nil {
			_ = remove(fresh)
			return err
		}
	}
	if err := s.install(fresh, record); err != nil {
		if aside != "" {
			_ = os.Rename(aside, s.path) // over what was installed, if it was
		}
		return err
	}
	return nil
}

// install gives an empty file its name and uses it instead of the one that was in use.
func (s *Store) install(fresh string, record storeRecord) error {
	if err := os.Rename(fresh, s.path); err != nil {
		return err
	}
	if !s.opts.NoSync {
		if err := syncFolder(s.path); err != nil {
			return err
		}
	}
	db, err := openBolt(s.path, s.opts.NoSync)
	if err != nil {
		return err
	}
	if s.db != nil {
		_ = s.db.Close() // nothing in it counts any more
	}
	s.use(db, record)
	return nil
}
