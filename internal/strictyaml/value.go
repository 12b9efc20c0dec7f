package strictyaml

import (
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// parseNumber parses an integer, a size or a duration, depending on typ.
func parseNumber(typ reflect.Type, text string) (int64, error) {
	switch {
	case typ == reflect.TypeFor[time.Duration]():
		d, err := parseDuration(text)
		return int64(d), err
	case typ.Kind() == reflect.Int64:
		return ParseSize(text)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, errNoInteger
	}
	return int64(n), nil
}

var errNoInteger = errors.New("write it in decimal digits, without quotes")

// formatNumber formats a number in the notation that parseNumber accepts.
func formatNumber(v reflect.Value) string {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return FormatDuration(time.Duration(v.Int()))
	case v.Kind() == reflect.Int64:
		return resource.NewQuantity(v.Int(), resource.BinarySI).String()
	}
	return strconv.FormatInt(v.Int(), 10)
}

// FormatDuration formats a duration without trailing zero components: 1h30m, not 1h30m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// parseDuration parses a duration in the notation of Go and Kubernetes: 30s, 1h30m, 100ms.
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	if strings.ContainsAny(text, "dw") && !strings.ContainsAny(text, ".") {
		return 0, errors.New("days and weeks are not supported: write 24h for a day")
	}
	if strings.Trim(text, "0123456789.") == "" && text != "" {
		return 0, fmt.Errorf("the unit is missing: write %ss for seconds", text)
	}
	return 0, errors.New("write a number and a unit, as in 30s, 5m or 1h30m")
}

var (
	sizeText  = regexp.MustCompile(`^[+-]?[0-9]{1,20}(\.[0-9]{1,20})?([KMGTPE]i|[mkMGTPE]|[eE][0-9]{1,2})?$`)
	errNoSize = errors.New("write a number and a unit, as in 512Ki, 16Mi or 1Gi")
)

// ParseSize parses a number of bytes in Kubernetes notation: 16Mi (2^20), 16M (10^6), 16777216.
func ParseSize(text string) (int64, error) {
	// ParseQuantity would take hours for 1e999999999.
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
		return 0, errors.New("use an integer number of bytes below 8Ei")
	}
	return n, nil
}

// checkFile returns an error if the file cannot be read.
func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("it does not exist")
	case err != nil:
		return reason(err)
	case info.IsDir():
		return errors.New("it is a directory, not a file")
	case !info.Mode().IsRegular():
		// Opening a pipe could block forever.
		return errors.New("it is not a regular file")
	}
	opened, err := os.Open(path)
	if err != nil {
		return reason(err)
	}
	return opened.Close()
}

// reason returns err without the path, because the message already contains the path.
func reason(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}
