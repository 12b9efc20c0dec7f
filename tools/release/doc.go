// Command release packs the files of a release. It needs no network.
//
//	release -dir DIR -version VERSION -commit COMMIT -date DATE -check
//	release -dir DIR -version VERSION -commit COMMIT -date DATE -bin DIR -image DIR -helm FILE -out DIR
//
// Contract:
//
//   - The tag vX.Y.Z is the only version: the chart's version and appVersion must be X.Y.Z, and CHANGELOG.md must have
//     a section "X.Y.Z - DATE". The working tree must be the commit of the tag, and the schemas of events must be stored
//     as released. If not, nothing is written. With -check, the command checks only this.
//   - -bin contains OS_ARCH/bridge for each platform, and -image is the output of tools/image.
//   - OUT/assets are the files to upload: for each platform an archive and an SBOM; the chart; the manifest for krew;
//     the provenance; and the checksums of all of them.
//   - OUT/chart is the chart as an OCI layout, made by Helm, so its digest is known before it is pushed.
//   - OUT/notes.md are the release notes: the section of CHANGELOG.md, and the digests of image and chart.
//   - The provenance is a SLSA statement that the build itself writes, without a signature: SLSA Build Level 1.
//   - The output is reproducible: it depends only on the input, and all times are that of the commit.
package main
