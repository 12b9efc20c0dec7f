package strictyaml

import (
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// parseNumber parses an integer, a size or a duration, depending on typ.
func parseNumber(typ reflect.Type, text string) (int64, error) {
	switch {
	case typ == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		return int64(d), err
	case typ.Kind() == reflect.Int64:
		return ParseSize(text)
	}
	return strconv.ParseInt(text, 10, strconv.IntSize)
}

var (
	sizeText  = regexp.MustCompile(`^[+-]?[0-9]{1,20}(\.[0-9]{1,20})?([KMGTPE]i|[kMGTPE]|[eE][0-9]{1,2})?$`)
	errNoSize = errors.New("not an integer number of bytes below 8Ei")
)

// ParseSize parses a number of bytes in Kubernetes notation: 16Mi (2^20), 16M (10^6), 16777216.
func ParseSize(text string) (int64, error) {
	if !sizeText.MatchString(text) { // ParseQuantity would take hours for 1e999999999.
		return 0, errNoSize
	}
	q, err := resource.ParseQuantity(text)
	n := q.Value()
	if err != nil || n == math.MaxInt64 || q.Cmp(*resource.NewQuantity(n, resource.DecimalSI)) != 0 {
		return 0, errNoSize
	}
	return n, nil
}

// checkFile returns an error if the file cannot be read.
func checkFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // Opening a pipe could block forever.
		return fmt.Errorf("%s is not a regular file", path)
	}
	opened, err := os.Open(path)
	if err != nil {
		return err
	}
	return opened.Close()
}
