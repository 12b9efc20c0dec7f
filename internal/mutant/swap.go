package mutant

// Swap exchanges two neighbours that are about the same thing, if there are any.
func Swap[T any](items []T, same func(a, b T) bool) {
	for n := 1; n < len(items); n++ {
		if same(items[n-1], items[n]) {
			items[n-1], items[n] = items[n], items[n-1]
			return
		}
	}
}
