package evaluate

import (
	"encoding/xml"
	"fmt"
	"io"
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

// WriteJUnit writes results as JUnit XML. A file whose tests could not be run has one test, with an error.
func WriteJUnit(w io.Writer, files []*Results) error {
	var all junit
	for _, r := range files {
		suite := junitSuite{Name: r.File, Tests: len(r.Results), Failures: r.Failed()}
		for _, result := range r.Results {
			c := junitCase{
				Name: result.Name, Class: r.File, File: r.File, Line: result.Line,
				Seconds: fmt.Sprintf("%.3f", result.Took.Seconds()),
			}
			if len(result.Failures) > 0 {
				var t table
				t.result(&result)
				c.Failure = &junitFailure{"other events than expected", t.out.String()}
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
	text, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}
