//go:build chaosmutants

package mutant

import "os"

// On reports whether the bridge is to be broken in this way.
func On(name string) bool { return os.Getenv("DELTABRIDGE_MUTANT") == name }
