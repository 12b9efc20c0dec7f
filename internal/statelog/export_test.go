package statelog

// SetInterval sets how many bytes are appended between two passes at least.
func (w *Writer) SetInterval(bytes int64) { w.interval = bytes }
