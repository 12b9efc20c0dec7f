package mutant

// Swap exchanges the first two adjacent items for which same returns true. If there are none, it does nothing.
func Swap[T any](items []T, same func(a, b T) bool) {
	for n := 1; n < len(items); n++ {
		if same(items[n-1], items[n]) {
			items[n-1], items[n] = items[n], items[n-1]
			return
		}
	}
}
