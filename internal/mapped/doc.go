// Package mapped keeps the memory maps of embedded stores from counting as memory of the process.
//
// bbolt reads its file through a memory map. Each page that was read stays mapped and is part of the resident memory, in
// the end the whole file is: limits, alarms and people take it for a leak. Released pages stay in the kernel's cache, from
// where they are mapped again when they are read, at the cost of a minor fault.
package mapped
