//go:build !(darwin || freebsd || linux)

package doctor

import "errors"

func freeSpace(string) (int64, error) { return 0, errors.ErrUnsupported }
