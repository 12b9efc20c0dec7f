package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"

	"github.com/deltabridge/deltabridge/tools/internal/modules"
)

// sbom says what the program was built of, by what the linker wrote into it. parts give the licenses; a module in the
// program that is not among them is an error.
func (r *release) sbom(binary, arch string, parts []modules.Module) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	licenses := map[string][]string{}
	for _, m := range parts {
		licenses[m.Path] = m.Licenses
	}
	components := []cyclonedx.Component{component("std", info.GoVersion, licenses["std"])}
	for _, m := range info.Deps {
		path := m.Path
		if m.Replace != nil {
			m = m.Replace
		}
		if licenses[path] == nil {
			return nil, fmt.Errorf("%s is in the program, and nothing is known of its license", path)
		}
		components = append(components, component(m.Path, m.Version, licenses[path]))
	}
	bom := cyclonedx.NewBOM()
	// The same program has the same number.
	name := strings.Join([]string{source, r.version, r.commit, arch}, " ")
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).URN()
	main := component("github.com/deltabridge/deltabridge", r.version, []string{license})
	main.Type = cyclonedx.ComponentTypeApplication
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return out.Bytes(), err
}

func component(path, version string, ids []string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	all := cyclonedx.Licenses{}
	for _, id := range ids {
		all = append(all, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	return cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, BOMRef: url, Name: path, Version: version, PackageURL: url, Licenses: &all,
	}
}
