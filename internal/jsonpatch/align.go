package jsonpatch

import "github.com/deltabridge/deltabridge/internal/jsonscan"

// maxAlign limits the cost of aligning two lists, which is the product of the list lengths. Longer lists are compared
// index by index.
const maxAlign = 1 << 14

// align matches the elements of two lists and returns the pairs of matching indices in ascending order: the equal
// elements at the start, the longest common subsequence of identities in the middle, and the equal elements at the end.
// It matches nothing in the middle if that part of the lists is too long.
func align(before, after [][]byte) (pairs [][2]int) {
	start, n, m := 0, len(before), len(after)
	for ; start < n && start < m && same(before[start], after[start]); start++ {
		pairs = append(pairs, [2]int{start, start})
	}
	for n > start && m > start && same(before[n-1], after[m-1]) {
		n, m = n-1, m-1
	}
	for _, pair := range common(identities(before[start:n]), identities(after[start:m])) {
		pairs = append(pairs, [2]int{start + pair[0], start + pair[1]})
	}
	for ; n < len(before); n, m = n+1, m+1 {
		pairs = append(pairs, [2]int{n, m})
	}
	return pairs
}

// common returns the pairs of indices of the longest common subsequence. It returns nil if the lists are too long.
func common(a, b []string) (pairs [][2]int) {
	n, m := len(a), len(b)
	if n*m > maxAlign {
		return nil
	}
	// longest[at(i, j)] is the length of the longest common subsequence of a[i:] and b[j:].
	longest := make([]uint16, (n+1)*(m+1))
	at := func(i, j int) int { return i*(m+1) + j }
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if a[i] == b[j] {
				longest[at(i, j)] = longest[at(i+1, j+1)] + 1
			} else {
				longest[at(i, j)] = max(longest[at(i+1, j)], longest[at(i, j+1)])
			}
		}
	}
	for i, j := 0, 0; i < n && j < m; {
		switch {
		case a[i] == b[j]:
			pairs = append(pairs, [2]int{i, j})
			i, j = i+1, j+1
		case longest[at(i+1, j)] >= longest[at(i, j+1)]:
			i++
		default:
			j++
		}
	}
	return pairs
}

func identities(elements [][]byte) []string {
	names := make([]string, len(elements))
	for n, e := range elements {
		names[n] = identity(e)
	}
	return names
}

// identity returns a string that identifies a list element: the first member that is a Kubernetes merge key, or the
// whole element if it has no such member. The most specific keys are tried first.
func identity(element []byte) string {
	for _, key := range [...]string{
		"uid", "mountPath", "devicePath", "name", "type", "key", "containerPort", "port", "ip",
	} {
		if value := jsonscan.Member(element, key); value != nil && value[0] != '{' && value[0] != '[' {
			return key + string(value)
		}
	}
	return string(element)
}
