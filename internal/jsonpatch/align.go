package jsonpatch

import "github.com/deltabridge/deltabridge/internal/jsonscan"

// maxAlign limits the cost of aligning two lists, which is the product of the list lengths. Longer lists are compared
// index by index.
const maxAlign = 1 << 14

// align matches the elements of two lists by identity and returns the pairs of indices of their longest common
// subsequence, in ascending order. It returns nil if a list is empty or the lists are too long.
func align(before, after [][]byte) (pairs [][2]int) {
	n, m := len(before), len(after)
	if n == 0 || m == 0 || n*m > maxAlign {
		return nil
	}
	a, b := identities(before), identities(after)
	// longest[at(i, j)] is the length of the longest common subsequence of before[i:] and after[j:].
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

// identity returns a string that identifies a list element. It uses the highest-ranking member that is a Kubernetes
// merge key. If the element has no such member, identity returns the whole element.
func identity(element []byte) string {
	ranks := ranks()
	best, name := len(ranks), ""
	w := jsonscan.Open(element, 0, '{')
	for key, value := range w.All {
		for rank, candidate := range ranks[:best] {
			if string(key) == candidate && value[0] != '{' && value[0] != '[' {
				best, name = rank, candidate+string(value)
				break
			}
		}
	}
	if name == "" {
		return string(element)
	}
	return name
}

// ranks returns the names of the members that can identify an element, the most specific first.
func ranks() [9]string {
	return [...]string{
		"uid",
		"mountPath",
		"devicePath",
		"name",
		"type",
		"key",
		"containerPort",
		"port",
		"ip",
	}
}
