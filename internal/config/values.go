package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Duration is a time span in Go's notation, which is also that of Kubernetes: 30s, 1h30m, 100ms.
type Duration time.Duration

// String is the notation that parseDuration reads, without zero parts: 1h30m rather than 1h30m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func parseDuration(text string) (Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		return Duration(d), nil
	}
	if strings.ContainsAny(text, "dw") && !strings.ContainsAny(text, ".") {
		return 0, errors.New("there are no days and weeks: write 24h for a day")
	}
	if strings.Trim(text, "0123456789.") == "" && text != "" {
		return 0, fmt.Errorf("the unit is missing: write %ss for seconds", text)
	}
	return 0, errors.New("write a number and a unit, as in 30s, 5m or 1h30m")
}

// Size is a number of bytes in Kubernetes notation: 16Mi (2^20), 16M (10^6), 16777216.
type Size int64

// String is the notation that parseSize reads.
func (s Size) String() string { return resource.NewQuantity(int64(s), resource.BinarySI).String() }

var (
	sizeText  = regexp.MustCompile(`^[+-]?[0-9]{1,20}(\.[0-9]{1,20})?([KMGTPE]i|[mkMGTPE]|[eE][0-9]{1,2})?$`)
	errNoSize = errors.New("write a number and a unit, as in 512Ki, 16Mi or 1Gi")
)

func parseSize(text string) (Size, error) {
	// ParseQuantity computes what 1e999999999 is, which takes hours.
	if !sizeText.MatchString(text) {
		return 0, errNoSize
	}
	if strings.HasSuffix(text, "m") {
		return 0, errors.New("m means a thousandth: write M or Mi")
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, errNoSize
	}
	n := q.Value()
	if q.Cmp(*resource.NewQuantity(n, resource.DecimalSI)) != 0 || n == math.MaxInt64 {
		return 0, errors.New("it is not a whole number of bytes below 8Ei")
	}
	return Size(n), nil
}

// File is the path of a file that exists and can be read, or empty. A relative path has been joined with the folder
// of the configuration file.
type File string

// check says why the file can't be used; nil if it can.
func (f File) check() error {
	info, err := os.Stat(string(f))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("there is no such file")
	case err != nil:
		return reason(err)
	case info.IsDir():
		return errors.New("it is a folder, not a file")
	case !info.Mode().IsRegular():
		// Opening a pipe could wait for ever, and files are read again at each connection.
		return errors.New("it is not a regular file")
	}
	opened, err := os.Open(string(f))
	if err != nil {
		return reason(err)
	}
	return opened.Close()
}

// reason is err without the path, which the message has already.
func reason(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}
