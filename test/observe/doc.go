// Package observe has handlers for tests of informers: they write down what they are given, or block.
package observe
