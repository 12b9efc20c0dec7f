package engine

import "sync"

// stage is a group of goroutines that end together.
type stage struct {
	group sync.WaitGroup
	once  sync.Once
	errs  chan error
}

func (s *stage) start(run func() error) {
	failed := s.failed()
	s.group.Go(func() {
		if err := run(); err != nil {
			select {
			case failed <- err:
			default: // one failure is enough to stop
			}
		}
	})
}

// failed receives the first error of the stage.
func (s *stage) failed() chan error {
	s.once.Do(func() { s.errs = make(chan error, 1) })
	return s.errs
}

func (s *stage) wait() { s.group.Wait() }

// failure is the first error of the stage, if nobody received it before.
func (s *stage) failure() error {
	select {
	case err := <-s.failed():
		return err
	default:
		return nil
	}
}
