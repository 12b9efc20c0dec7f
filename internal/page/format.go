package page

import (
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/deltabridge/deltabridge/internal/console"
)

// count formats a number with separators: 12,345.
func count(n int64) string { return console.Count(n) }

// plural formats a number and a noun: 1 event, 2 events.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// rate formats a number per second.
func rate(perSecond float64) string {
	switch {
	case perSecond <= 0 || math.IsNaN(perSecond):
		return "0/s"
	case perSecond < 0.1:
		return "<0.1/s"
	case perSecond < 10:
		return fmt.Sprintf("%.1f/s", perSecond)
	}
	return count(int64(math.Round(perSecond))) + "/s"
}

// bytesOf formats a number of bytes: 3.2 MiB.
func bytesOf(n int64) string {
	value, unit := float64(n), 0
	for value >= 1000 && unit < 4 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	format := "%.1f %s"
	if value >= 10 {
		format = "%.0f %s"
	}
	return fmt.Sprintf(format, value, []string{"", "KiB", "MiB", "GiB", "TiB"}[unit])
}

// seconds formats a duration in seconds: 4s, 12m, 2h14m.
func seconds(s float64) string {
	return duration.HumanDuration(time.Duration(s * float64(time.Second)))
}

// percent returns a part of a whole in percent, from 0 to 100. A part that is not 0 is at least 1.
func percent[T int64 | float64](part, whole T) int {
	if part <= 0 || whole <= 0 {
		return 0
	}
	return min(100, max(1, int(100*float64(part)/float64(whole))))
}

// resourceName returns the name of a resource without its group, and the group.
func resourceName(resource string) (parts [2]string) {
	parts[0], parts[1], _ = strings.Cut(resource, ".")
	return parts
}

// clock formats a time for people, in UTC.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// machine formats a time for the attribute datetime.
func machine(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
