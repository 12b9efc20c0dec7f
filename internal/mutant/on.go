//go:build chaosmutants

package mutant

import "os"

// On reports whether the named mutant is active.
func On(name string) bool { return os.Getenv("DELTABRIDGE_MUTANT") == name }
