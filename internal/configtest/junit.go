package configtest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/deltabridge/deltabridge/internal/console"
)

// junit is a file in the format of JUnit, as CI systems read it.
type junit struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr,omitempty"`
	Seconds string        `xml:"time,attr,omitempty"`
	Failure *junitFailure `xml:"failure"`
	Error   *junitFailure `xml:"error"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes reports as JUnit XML. A file whose tests could not be run has one test, with an error.
func WriteJUnit(w io.Writer, reports []*Report) error {
	var all junit
	for _, r := range reports {
		suite := junitSuite{Name: r.File, Tests: len(r.Results), Failures: r.Failed()}
		for _, result := range r.Results {
			c := junitCase{
				Name: result.Name, Class: r.File, File: r.File, Line: result.Line,
				Seconds: fmt.Sprintf("%.3f", result.Took.Seconds()),
			}
			if len(result.Failures) > 0 {
				var text strings.Builder
				result.write(&text, console.Style{})
				c.Failure = &junitFailure{"other events than expected", text.String()}
			}
			suite.Cases = append(suite.Cases, c)
		}
		if r.Err != nil {
			suite.Tests, suite.Errors = suite.Tests+1, 1
			suite.Cases = append(suite.Cases, junitCase{
				Name: "(file)", Class: r.File, File: r.File,
				Error: &junitFailure{"the tests could not be run", r.Err.Error()},
			})
		}
		all.Suites = append(all.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
